"""Marked trees: places, parts, merging."""

from dse.base.parse import parse_tree
from dse.base.tree import Mark, merge


def test_each_value_and_key_knows_its_place() -> None:
    tree = parse_tree("axes:\n  tp: [1, 2]\n  'pp': {to: 4}\n", "s.yaml")
    assert tree.data == {"axes": {"tp": [1, 2], "pp": {"to": 4}}}
    assert tree.mark(("axes", "tp", 1)) == Mark("s.yaml", 2, 11)
    assert tree.mark(("axes", "pp", "to"), key=True) == Mark("s.yaml", 3, 10)
    assert tree.mark(("axes", "pp", "to")) == Mark("s.yaml", 3, 14)
    assert tree.mark(("axes", "tp", 1, "beyond")) == Mark("s.yaml", 2, 11)
    assert str(tree.fault(("axes", "tp"), "is empty")) == "s.yaml:2:7: axes.tp: is empty"


def test_a_part_is_a_tree_of_its_own() -> None:
    tree = parse_tree("a:\n  b:\n    c: 1\n", "s.yaml")
    part = tree.under(("a", "b"))
    assert part.data == {"c": 1}
    assert part.mark(("c",)) == Mark("s.yaml", 3, 8)
    again = part.nested(("a", "b"))
    assert again.data == tree.data
    assert again.mark(("a", "b", "c")) == Mark("s.yaml", 3, 8)
    assert tree.without("a").data == {}


def test_merging_joins_mappings_and_replaces_the_rest() -> None:
    below = parse_tree("a: {x: 1, y: [1, 2, 3]}\nb: 2\n", "below")
    above = parse_tree("\n\na: {y: [4], z: {w: 5}}\n", "above")
    tree = merge(below, above)
    assert tree.data == {"a": {"x": 1, "y": [4], "z": {"w": 5}}, "b": 2}
    assert tree.mark(("a", "x")) == Mark("below", 1, 8)
    assert tree.mark(("a", "y", 0)) == Mark("above", 3, 9)
    assert tree.mark(("a", "y", 1)) == Mark("above", 3, 8)  # its old place is forgotten
    assert tree.mark(("a", "z", "w")) == Mark("above", 3, 20)
    assert below.data == {"a": {"x": 1, "y": [1, 2, 3]}, "b": 2}


def test_a_scalar_laid_on_a_mapping_hides_all_of_it() -> None:
    tree = merge(parse_tree("a: {x: 1}", "below"), parse_tree("a: 3", "above"))
    assert tree.data == {"a": 3}
    assert tree.mark(("a", "x")) == Mark("above", 1, 4)
