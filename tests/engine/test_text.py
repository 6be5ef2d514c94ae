"""IR as lines of text."""

from __future__ import annotations

from metalwright.engine.passes import text

MODULE = """@table = constant i32 1

define void @first(ptr %0) {
  ret void
}

define internal i32 @"second kernel"(i32 %0) {
  ret i32 %0
}

define void @third() {
  ret void
}

!0 = !{}""".split("\n")


def test_a_function_alone_keeps_what_is_outside_of_functions() -> None:
    kept = text.alone(MODULE, "second kernel")
    assert [function.name for function in text.functions(kept)] == ["second kernel"]
    assert [line for line in kept if line and not line.startswith((" ", "}"))] == [
        "@table = constant i32 1",
        'define internal i32 @"second kernel"(i32 %0) {',
        "!0 = !{}",
    ]
    assert text.alone(kept, "second kernel") == kept
