"""The table of budgets names files that are there, and nothing that the default would do for."""

import pytest
from budgets import DEFAULT, SECONDS
from paths import ROOT


@pytest.mark.parametrize("file", SECONDS)
def test_a_file_with_a_budget_of_its_own_is_there_and_needs_it(file: str):
    assert (ROOT / "tests" / file).is_file()
    assert SECONDS[file] > DEFAULT
