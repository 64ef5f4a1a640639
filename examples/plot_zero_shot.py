"""
Zero-shot: text features as a head
==================================

A zero-shot classifier has no head that was trained: each class is described by a text, and the
features of the texts are the weight vectors. Such a head prefers some classes too, and there are no
training counts and no labels to adjust it with. What it says of inputs without labels takes their
place.
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits

import levelhead as lh

# %%
# The images are scikit-learn's digits, of which we have no labels until the end. The texts are
# "0" to "9", and their encoder is a typeface: each text is set in it, stretched to the height of
# the image, and looked at as 64 gray values. It has never seen a handwritten digit.

FONTS = Path(mpl.get_data_path(), "fonts", "ttf")


def encode_text(text: str, typeface: str) -> np.ndarray:
    """Features [64] of a text: set in a typeface, cut out, stretched to 8 pixels of height."""
    page, font = Image.new("L", (128, 128)), ImageFont.truetype(FONTS / f"{typeface}.ttf", 64)
    ImageDraw.Draw(page).text((32, 16), text, 255, font=font)
    glyph = page.crop(page.getbbox())
    glyph = glyph.resize((max(1, glyph.width * 62 // glyph.height), 62))
    canvas = Image.new("L", (64, 64))
    canvas.paste(glyph, (32 - glyph.width // 2, 1))
    return np.asarray(canvas.resize((8, 8), Image.Resampling.BOX)).ravel() / 255


def unit(features: np.ndarray) -> np.ndarray:
    """Features of unit length, as those of CLIP are."""
    return features / np.linalg.norm(features, axis=-1, keepdims=True)


digits = load_digits()
images = unit(digits.data)
order = np.random.default_rng(0).permutation(len(images))
stream, test = order[:900], order[900:]  # inputs without labels, and those that judge

# %%
# The head is the text features, times the inverse temperature. On the stream it says 1 far too
# often, and hardly ever 2: a 1 is a bar, and there is a bar in most digits.

texts = unit(np.array([encode_text(str(k), "DejaVuSerif") for k in range(10)]))
head = lh.Head(20 * texts, names=[str(k) for k in range(10)])
said = np.bincount(head.logits(images[stream]).argmax(axis=1), minlength=10)
print("how often each digit is said:", dict(zip(head.names, said.tolist(), strict=True)))

# %%
# The digits occur equally often, and ``tune_unlabelled`` needs no more: it finds offsets at which the
# mean of the softmax is uniform. ``adjust`` gives the head a bias.

tuned = lh.tune_unlabelled(head.logits(images[stream]))
print(tuned)
adjusted = lh.adjust(head, tuned)


def accuracy(head: lh.Head) -> float:
    """Share of the test images that a head gets right: the only use of labels here."""
    return float((head.logits(images[test]).argmax(axis=1) == digits.target[test]).mean())


print(
    f"accuracy on {len(test)} other images: {accuracy(head):.1%}, adjusted {accuracy(adjusted):.1%}"
)

# %%
# One text encoder could be luck. Every other one that comes with matplotlib, as other prompts would
# be for CLIP, and the mean of all:

TYPEFACES = ["DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif"]
TYPEFACES += [
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "cmr10",
]
features = {face: np.array([encode_text(str(k), face) for k in range(10)]) for face in TYPEFACES}
features["mean of all"] = np.mean(list(features.values()), axis=0)
print(f"{'text encoder':20} {'as it is':>9} {'adjusted':>9}")
results = []
for face, values in features.items():
    plain = lh.Head(20 * unit(values))
    logits = plain.logits(images[stream])
    choice = lh.tune_unlabelled(logits)
    results.append((accuracy(plain), accuracy(lh.adjust(plain, choice))))
    print(f"{face:20} {results[-1][0]:9.1%} {results[-1][1]:9.1%}")
before, after = np.array(results).T
print(
    f"better in {(after > before).sum()} of {len(results)}; in the mean by {100 * (after - before).mean():.1f} points"
)

# %%
# It rests on the target: here digits are equally frequent, and we said so. Where the shares of the
# classes are not known, do not go by a guess (see the example on unlabelled data).

shares = [
    np.bincount(each.logits(images[test]).argmax(axis=1), minlength=10) / len(test)
    for each in (head, adjusted)
]
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for i, (share, name) in enumerate(zip(shares, ("as it is", "adjusted"), strict=True)):
    axes.bar(np.arange(10) + 0.4 * i - 0.2, 100 * share, 0.4, label=name)
axes.axhline(10, color="gray", linewidth=1)
axes.set(xlabel="digit", ylabel="said of the test images, %", xticks=range(10))
axes.legend(frameon=False)
plt.show()
