"""What changed while the dashboard was closed: on a real log, with a second start."""

from __future__ import annotations

from tests.end_to_end.product import QUICK, Product, step_line


def test_the_next_start_says_in_one_line_that_a_run_restarted_and_u_lists_it(product: Product) -> None:
    logs = {name: product.work / f"{name}.log" for name in ("llm", "sft")}
    for log in logs.values():
        log.write_text("".join(step_line(step) for step in range(190, 200)))
    runs = "".join(f'[[run]]\nname = "{name}"\nlog = "{log}"\n' for name, log in logs.items())
    config = str(product.config(runs))
    screen = product.screen("--config", config)
    for name in logs:
        screen.until_line(name, r"\b199\b")
    assert "Since" not in screen.text(), "the first time"
    assert screen.leave() < QUICK

    with logs["llm"].open("a") as log:
        log.writelines(step_line(step) for step in range(120, 124))
    screen = product.screen("--config", config, columns=80, rows=24)
    line = screen.until_line("Since", "u list")
    assert "llm restarted  u list  Esc hide" in line
    assert "sft" not in line
    screen.keys("u")
    text = screen.until_shown("restarted  llm: its steps went back, step 199 → 123", "sft: healthy, step 199 *│")
    assert text.index("AS BEFORE") < text.index("sft:")
    assert screen.leave() < QUICK
