"""Options of models that read images."""

from __future__ import annotations

from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.option_values import one_of, parse_bytes, parse_count, parse_image_hosts

IMAGE_OPTIONS: tuple[Option, ...] = (
    Option("images", "WORD", one_of("on", "off"), "Read images in prompts.", "on where the model has an encoder"),
    Option(
        "mmproj",
        "FILE",
        str,
        "The GGUF file that contains the encoder of images.",
        "the one next to the model's GGUF file",
    ),
    Option("image_tokens", "COUNT", parse_count, "Most image rows of an image whose size decides.", "4096"),
    Option(
        "image_urls",
        "HOSTS",
        parse_image_hosts,
        "Hosts that images may be fetched from over https, by name, such as images.example.org; HOST:PORT, "
        "http://HOST, * for all public ones; a private address must be listed by its digits.",
        "none: image URLs are refused",
        many=True,
    ),
    Option("image_cache", "BYTES", parse_bytes, "Most bytes of encoded images that are kept.", "256MiB"),
)
