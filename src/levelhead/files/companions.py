"""What stands next to a model in its folder and belongs to it: config, tokenizer, preprocessor, card, license."""

from collections.abc import Sequence
from pathlib import Path

# Other weights and the state of a training: a second copy of the model would not be adjusted, and is left out.
LEFT_OUT = (
    ".safetensors",
    ".index.json",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".keras",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".gguf",
    ".tflite",
    ".npz",
    ".pkl",
    ".pickle",
    ".joblib",
    ".original",
)


def companion_files(folder: Path, files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return what belongs to a model in a folder besides its own files, and the names of what is left out.

    Args:
        folder: in which the model is.
        files: of the model.

    Returns:
        Files to copy; names of other weights, of a training's state and of folders, which are not copied.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     for file in ("config.json", "vocab.txt", "optimizer.pt", ".gitattributes"):
    ...         _ = Path(name, file).write_text("")
    ...     copied, left = companion_files(Path(name), [])
    >>> [file.name for file in copied], left
    (['config.json', 'vocab.txt'], ['optimizer.pt'])
    """
    own = {file.name for file in files}
    others = [path for path in sorted(folder.iterdir()) if path.name not in own and not path.name.startswith(".")]
    copied = [path for path in others if path.is_file() and not path.name.lower().endswith(LEFT_OUT)]
    return copied, [path.name for path in others if path not in copied]
