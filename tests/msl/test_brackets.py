"""A bracket too many or too few breaks the generated text around the user's: the message still shows the user's."""

import pytest

from metalwright.errors import CompileError
from tests.support import body, tensor

PARAMETERS = (tensor("float", 1, "out", 0), "uint gid [[thread_position_in_grid]]")


@pytest.mark.parametrize(
    ("src", "says"),
    [
        ("out[gid] = 1;\n}\n", "k.src:2:1: error: '}' closes nothing that was opened here\n    }\n    ^"),
        (
            "if (gid > 2) {\n  out[gid] = 1;\n",
            "k.src:1:14: error: '{' is never closed\n    if (gid > 2) {\n                 ^",
        ),
        ("{ { out[gid] = '}'; /* } */ }\n", "k.src:1:1: error: '{' is never closed"),
        ('out[gid] = sizeof("}");\n}}\n', "k.src:2:2: error: extraneous closing brace"),
    ],
)
def test_the_bracket_is_shown(src: str, says: str) -> None:
    with pytest.raises(CompileError) as caught:
        body(src, *PARAMETERS)
    assert says in str(caught.value)


@pytest.mark.parametrize("src", ["/* never ended", "out[gid] = 1; /* never\nended"])
def test_nothing_is_said_of_generated_text(src: str) -> None:
    with pytest.raises(CompileError) as caught:
        body(src, *PARAMETERS)
    text = str(caught.value)
    assert "unterminated /* comment" in text
    assert "pragma" not in text
    assert all(diagnostic.site is not None for diagnostic in caught.value.diagnostics)
