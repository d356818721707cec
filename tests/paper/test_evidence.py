from __future__ import annotations

from planted import grid_cell, grid_scores

from paper.evidence import lower_than


def test_numbers_stand_beside_the_rival_they_belong_to():
    scores = grid_scores(0.6, sdp_rr=0.5)
    scores["sdp+dr"] = {"error": "no solver"}
    holds, text, count = lower_than("sdp+dr", "sdp+rr")([grid_cell(scores)])
    assert not holds
    assert text.startswith("lower than SDP+RR in 0% of cells")
    assert count == 1


def test_only_cells_that_are_asked_for_count():
    cells = [grid_cell(k=5), grid_cell(grid_scores(0.9), k=20)]
    judge = lower_than("pca", among=lambda f: f.cell.k == 5)
    assert judge(cells) == (True, judge(cells[:1])[1], 1)


def test_no_cell_is_no_evidence():
    assert lower_than("pca")([]) == (False, "", 0)
