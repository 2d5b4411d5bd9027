"""Questions of logins, asked once and one after the other."""

from __future__ import annotations

import queue
import threading

from trainmon.model import PromptsChanged
from trainmon.runtime.backend import Prompts


def prompted(prompts: Prompts, host: str, answers: queue.Queue[tuple[str, ...] | None]) -> threading.Thread:
    ask = threading.Thread(
        target=lambda: answers.put(prompts.ask(host, "Password", "", (("Password: ", False),))), daemon=True
    )
    ask.start()
    return ask


def test_an_answer_reaches_the_prompt_and_no_event() -> None:
    published: queue.Queue[PromptsChanged] = queue.Queue()
    answers: queue.Queue[tuple[str, ...] | None] = queue.Queue()
    prompts = Prompts(published.put)
    prompted(prompts, "login1", answers)
    (prompt,) = published.get(timeout=120).prompts
    assert (prompt.host, prompt.title, prompt.fields) == ("login1", "Password", (("Password: ", False),))
    prompts.answer(prompt.id, ("secret",))
    assert answers.get(timeout=120) == ("secret",)
    last = published.get(timeout=120)
    assert last.prompts == ()
    assert "secret" not in repr(last)


def test_questions_come_one_at_a_time() -> None:
    published: queue.Queue[PromptsChanged] = queue.Queue()
    answers: queue.Queue[tuple[str, ...] | None] = queue.Queue()
    prompts = Prompts(published.put)
    prompted(prompts, "a", answers)
    first = published.get(timeout=120).prompts
    prompted(prompts, "b", answers)
    prompts.answer(first[0].id, None)
    assert answers.get(timeout=120) is None
    assert published.get(timeout=120).prompts == ()
    assert [prompt.host for prompt in published.get(timeout=120).prompts] == ["b"]


def test_nobody_answers_in_time() -> None:
    prompts = Prompts(lambda _: None, patience=0.01)
    assert prompts.ask("a", "Password", "", ()) is None


def test_closing_declines_what_is_open_and_what_follows() -> None:
    published: queue.Queue[PromptsChanged] = queue.Queue()
    answers: queue.Queue[tuple[str, ...] | None] = queue.Queue()
    prompts = Prompts(published.put)
    prompted(prompts, "a", answers)
    published.get(timeout=120)
    prompts.close()
    assert answers.get(timeout=120) is None
    assert prompts.ask("b", "Password", "", ()) is None
