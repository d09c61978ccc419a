import torch

import fsabs


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.paths = sorted(map(str, fsabs.Path("pictures://bucket").glob("*/*.bin")))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with fsabs.open_url(self.paths[index], "rb") as file:
            pixels = bytearray(file.read())
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
