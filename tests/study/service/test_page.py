"""The page in a real browser, where there is one: Playwright, and Chromium of the system."""

import re
import shutil
from contextlib import ExitStack

import pytest

from contextual_lqr import Trajectory
from contextual_lqr.study import shown_belief
from contextual_lqr.study.service import pulse
from contextual_lqr.study.tokens import Tokens
from served import served
from watched_study import MISLABELLED, watched_study

api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

CONTEXT = {"mass": 1.0, "friction": 1.0}
SHORT = Trajectory([[1, 0], [1, 0]], [[0]])
ODD = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('page')}/fleet.db"
    study = watched_study(url, 8, 24, asked=False)
    patch = pytest.MonkeyPatch()
    patch.setattr(pulse, "LOOK", 0.05)
    patch.setattr(shown_belief, "SIDE", 5)
    with served({"carts": study}) as address:
        yield study, address
    patch.undo()


@pytest.fixture
def opened(browser, service):
    """Opens the page; whatever a console or an exception says fails the test."""
    said: list[str] = []
    with ExitStack() as stack:

        def page(url: str = service[1], **options):
            context = browser.new_context(**options)
            stack.callback(context.close)
            one = context.new_page()
            one.set_default_timeout(30_000)
            one.on("console", lambda message: said.append(message.text))
            one.on("pageerror", lambda error: said.append(str(error)))
            one.goto(url)
            return one

        yield page, said


def seen(page, selector: str, pattern: str) -> None:
    api.expect(page.locator(selector)).to_have_text(re.compile(pattern), timeout=30_000)


def test_it_says_how_it_stands(opened) -> None:
    page, said = opened[0](), opened[1]
    seen(page, "#link", "^Live$")
    seen(page, "#sentence", r"^\d+ episodes of \d+ machines; 2 out, 1 late\.$")
    seen(page, "#trusted", r"^\d+ of 20 machines never tried would be trusted\.$")
    seen(page, "#alarm-line", f"{MISLABELLED} behaves like mass")
    seen(page, "#costs-words", "^The last 20 episodes cost")
    seen(page, "#theta-words", "^Every direction has been excited")
    assert page.locator("#machines tbody tr").count() >= 8
    assert page.locator("#map td[role=gridcell]").count() == 25
    assert page.locator("#cost-plot canvas").count() == 1
    api.expect(page.locator("#detail-plots canvas")).to_have_count(4)
    assert page.title() == "carts · contextual-lqr"
    assert said == []


def test_it_is_live_and_names_are_text(opened, service) -> None:
    page, said = opened[0](), opened[1]
    study = service[0]
    seen(page, "#sentence", "machines")
    before = int(page.locator("#sentence").text_content().split()[0])
    study.tell(CONTEXT, SHORT, ODD)
    seen(page, "#sentence", f"^{before + 1} episodes of 9 machines")
    row = page.locator("#machines").get_by_role("button", name=ODD)
    api.expect(row).to_have_text(ODD)
    row.click()
    seen(page, "#detail-title", re.escape(ODD))
    assert page.title() == "carts · contextual-lqr"
    assert page.locator("main img, main script").count() == 0
    assert said == []


def test_the_map_is_walked_with_the_keyboard(opened) -> None:
    page = opened[0]()
    api.expect(page.locator("#map td[aria-selected=true]")).to_have_count(1)
    cell = page.locator("#map td[tabindex='0']")
    assert cell.count() == 1
    cell.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    chosen = page.locator("#map td[aria-selected=true]")
    api.expect(chosen).to_have_attribute("aria-label", re.compile("mass 1.63 kg, friction 1.5 N"))
    seen(page, "#detail-title", "^mass 1.63 kg, friction 1.5 N s/m$")
    seen(page, "#detail-verdict", "trust|caution|do not use")
    assert page.locator(":focus").get_attribute("aria-label").startswith("mass 1.63")
    assert page.locator("#map td[tabindex='0']").count() == 1


@pytest.mark.parametrize("width", [320, 375, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_phones_and_desktops_by_day_and_night(opened, width, scheme) -> None:
    page = opened[0](viewport={"width": width, "height": 800}, color_scheme=scheme)
    seen(page, "#trusted", "would be trusted")
    api.expect(page.locator("#detail-plots canvas")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != first
    page.reload()
    assert page.evaluate(ground) != first  # what was chosen stays


def test_a_token_is_asked_for_and_kept_out_of_addresses(opened, tmp_path) -> None:
    study = watched_study(f"sqlite:///{tmp_path}/fleet.db", 2, 2, asked=False)
    tokens = Tokens(study._log)
    token, text = tokens.create("watch")
    addresses: list[str] = []
    with served({"carts": study}) as url:
        page = opened[0](url)
        page.on("request", lambda one: addresses.append(one.url))
        seen(page, "#refused", "needs a token")
        page.fill("#token", "clqr_0000000000000000_nothing")
        page.click("#sign-in button")
        seen(page, "#refused", "not accepted here")
        page.fill("#token", text)
        page.click("#sign-in button")
        seen(page, "#sentence", "2 episodes of 2 machines")
        page.reload()
        seen(page, "#sentence", "2 episodes of 2 machines")  # kept in this tab
        assert not any("clqr_" in one for one in addresses)
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        tokens.revoke(token.id)
        study.tell(CONTEXT, SHORT)
        seen(page, "#refused", "not accepted here")


def test_a_service_that_goes_and_comes_back_is_said(opened, tmp_path) -> None:
    where = f"sqlite:///{tmp_path}/fleet.db"
    with served({"carts": watched_study(where, 2, 2, asked=False)}) as url:
        page = opened[0](url)
        seen(page, "#sentence", "2 episodes")
    seen(page, "#link", "does not answer; this is how things stood at")
    again = watched_study(where, 2, 0)
    again.tell(CONTEXT, SHORT)
    with served({"carts": again}, port=int(url.rsplit(":", 1)[1])):
        seen(page, "#link", "^Live$")
        seen(page, "#sentence", "3 episodes")
