import torch
from litdata import StreamingDataLoader, StreamingDataset


def decoded(sample):
    return torch.frombuffer(bytearray(sample["img"]), dtype=torch.uint8) / 255, int(sample["cls"])


class Decoded(StreamingDataset):
    def __getitem__(self, index):
        return decoded(super().__getitem__(index))


dataset = Decoded("lit", shuffle=True, seed=0)
loader = StreamingDataLoader(dataset, batch_size=8, num_workers=2)

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
