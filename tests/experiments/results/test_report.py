"""Reports: one HTML page of a run or of a study, as a browser shows it."""

import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

import pytest

from bfl.commands.main import main
from bfl.errors import DataError
from bfl.experiments.results import RunFolder
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.report import run_report
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy, study_in
from bfl.experiments.studies.pages import study_report

sys.path.insert(0, str(Path(__file__).resolve().parent))

from test_figures_and_tables import CONFIG, make_run

ROOT = Path(__file__).resolve().parents[3]

FRAMES = """<title></title>
<iframe srcdoc="{page}" style="width:1280px; border:0"></iframe>
<iframe srcdoc="{page}" style="width:390px; border:0"></iframe>
<script>
onload = () => document.title = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, seen = [...page.querySelectorAll("figure svg")];
    const shown = seen.filter(svg => svg.getBoundingClientRect().height > 50);
    return [page.documentElement.scrollWidth <= frame.clientWidth, shown.length].join(":");
}}).join(" ");
</script>"""
"""A report at the widths of a screen and of a telephone: does it fit, how many figures show?"""


@pytest.mark.slow
def test_the_report_is_one_page_with_every_figure(tmp_path):
    run = make_run(tmp_path, "run")
    page = run_report(run)
    drawn = {path.stem for path in draw_all(run)}
    assert set(re.findall(r'<figure id="([^"]+)"', page)) == drawn
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page), "it loads nothing"
    assert CONFIG["partition"] in page
    assert run_report(run) == page
    shows(page, len(drawn), tmp_path)


@pytest.mark.slow
def test_the_report_of_a_study_has_its_claims_and_figures(tmp_path):
    study = StudyFolder(ROOT / "docs/results/fischer2024-table2-fashion-mnist")
    page = study_report(OpenedStudy(study, study_in(study)))
    assert re.findall(r'<figure id="([^"]+)"', page) == ["claims", "figure-2"]
    assert page.count("<td>found</td>") == 20
    assert "iid: WS &gt; NWA" in page
    shows(page, 2, tmp_path)


def shows(page, figures, folder):
    """Assert that a browser shows a page without an error, at two widths; where there is one."""
    if not (chromium := shutil.which("chromium")):
        return
    (folder / "page.html").write_text(FRAMES.format(page=escape(page)), encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    done = subprocess.run(
        [chromium, *options, "--dump-dom", f"file://{folder}/page.html"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr
    assert f"<title>true:{figures} true:{figures}</title>" in done.stdout


@pytest.mark.slow
def test_what_users_name_is_no_markup_in_a_report(tmp_path):
    name = "<script>alert(1)</script>"
    folder = make_run(tmp_path, "run", config={**CONFIG, "partition": name}, rounds=3)
    assert name not in run_report(folder)


@pytest.mark.slow
def test_a_report_shows_metrics_of_numbers_and_overwrites_no_other_file(tmp_path, capsys):
    numbers = {"root-mean-squared-error": 1.5, "interval-coverage": 0.875, "seconds": 3.0}
    folder = make_run(tmp_path, "run", rounds=3)
    folder.write_metrics(numbers)
    page = run_report(folder)
    assert re.findall(r"<b>([^<]+)</b>", page) == ["1.5000", "0.8750"]
    better = dict(re.findall(r"<td>([^<]+)</td><td[^>]*>[^<]+</td><td>(\w*)</td>", page))
    assert better == {**dict.fromkeys(numbers, ""), "root-mean-squared-error": "lower"}
    (tmp_path / "notes.md").write_text("mine")
    for options in (["--output", "x"], ["--to", str(tmp_path / "notes.md")], ["--only", "a"]):
        assert main(["report", str(folder.path), *options]) == 2
        assert options[0] in capsys.readouterr().err
    assert (tmp_path / "notes.md").read_text() == "mine"
    assert main(["report", str(folder.path), "--to", str(tmp_path / "sent.html")]) == 0
    assert (tmp_path / "sent.html").read_text() == page


def test_a_run_that_is_not_over_has_no_report(tmp_path):
    with pytest.raises(DataError, match="not finished"):
        run_report(RunFolder.create(tmp_path, "run", CONFIG, {}))
