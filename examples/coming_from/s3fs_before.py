import s3fs
import torch


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.paths = s3fs.S3FileSystem().glob("bucket/pictures/*/*.bin")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        pixels = bytearray(s3fs.S3FileSystem().cat_file(self.paths[index]))
        return torch.frombuffer(pixels, dtype=torch.uint8) / 255, int(self.paths[index].split("/")[-2])


loader = torch.utils.data.DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=2)

model = torch.nn.Linear(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for pixels, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(
            *(f"{epoch} {label} {total:.0f}" for label, total in zip(labels, 255 * pixels.sum(1), strict=True)),
            sep="\n",
        )
