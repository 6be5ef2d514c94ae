"""The order of blocks in which lanes catch up: before all that follows, each loop in one piece, its end last."""

from __future__ import annotations

from metalwright.engine.passes.order import Block, Step, find_blocks, in_order

# what follows the loop (%out) stands before the loop's own last part (%rest), as clang writes `while (true)`
FUNCTION = """define void @f(ptr %0) {
  br label %head

head:                                             ; preds = %again, %rest, %1
  %i = phi i32 [ 0, %1 ], [ 1, %rest ], [ 2, %again ]
  br i1 %leave, label %out, label %stay

out:
  switch i32 %i, label %end [
    i32 0, label %one
    i32 1, label %two
  ]

stay:
  br i1 %skip, label %again, label %rest

again:
  br label %head

rest:
  br label %head

one:
  br label %end

two:
  unreachable

end:
  ret void
}""".split("\n")


def places(blocks: list[Block]) -> dict[int, int]:
    """Each block's place in the order; loops' ends are left out."""
    return {step.block: place for place, step in enumerate(in_order(blocks)) if not step.ends}


def test_blocks_and_where_they_lead() -> None:
    blocks = find_blocks(FUNCTION)
    assert [block.successors for block in blocks] == [
        (1,),
        (2, 3),
        (8, 6, 7),
        (4, 5),
        (1,),
        (1,),
        (8,),
        (),
        (),
    ]
    assert FUNCTION[blocks[1].first].startswith("head:")
    assert blocks[0].first == 1


def test_a_first_block_with_a_label() -> None:
    labelled = [FUNCTION[0], "_Z1fi.exit:", *FUNCTION[1:]]
    blocks = find_blocks(labelled)
    assert blocks[0].first == 1
    assert [block.successors for block in blocks] == [block.successors for block in find_blocks(FUNCTION)]


def test_a_loop_stands_together_whatever_the_text_says() -> None:
    order = list(in_order(find_blocks(FUNCTION)))
    assert order[0] == Step(0)
    assert order[1] == Step(1)
    assert {step.block for step in order[2:5]} == {3, 4, 5}
    assert order[5] == Step(1, ends=True)
    assert order[6] == Step(2)
    assert {step.block for step in order[7:]} == {6, 7, 8}
    assert order.index(Step(6)) < order.index(Step(8))
    assert {step.block for step in order} == set(range(9))


def test_loops_nest() -> None:
    # 0 -> 1 { 2 { 3 } 4 } 5
    successors = [(1,), (2, 5), (3, 4), (2,), (1,), ()]
    order = list(in_order([Block(0, 0, targets) for targets in successors]))
    assert order == [
        Step(0),
        Step(1),
        Step(2),
        Step(3),
        Step(2, ends=True),
        Step(4),
        Step(1, ends=True),
        Step(5),
    ]


def test_a_block_that_is_a_loop_by_itself() -> None:
    order = list(in_order([Block(0, 0, (1,)), Block(0, 0, (1, 2)), Block(0, 0, ())]))
    assert order == [Step(0), Step(1), Step(1, ends=True), Step(2)]


def test_branches_come_before_the_place_where_they_meet() -> None:
    successors = [(1, 2), (3, 4), (4,), (4,), ()]
    place = places([Block(0, 0, targets) for targets in successors])
    for block, targets in enumerate(successors):
        assert all(place[block] < place[target] for target in targets)


def test_a_long_chain_of_blocks_needs_no_deep_stack() -> None:
    count = 20_000
    blocks = [Block(0, 0, (i + 1,) if i + 1 < count else ()) for i in range(count)]
    assert [step.block for step in in_order(blocks)] == list(range(count))
