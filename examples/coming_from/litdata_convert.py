import litdata

from fsabs.readers import convert

dataset = litdata.StreamingDataset("lit")
convert("records", lambda: ({"img": each["img"], "cls": int(each["cls"])} for each in dataset), 4, "train")
