"""Secrets are masked, training text is not."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmon.lib.text import MASK, scrub, scrub_all

HEX40 = "0123456789abcdef0123456789abcdef01234567"
S3CRET = "S3cr3tValue0fMine"

SECRETS = [
    f"python train.py --wandb-key={S3CRET} --lr 1e-4",
    f"python train.py --api_key {S3CRET} --lr 1e-4",
    f"python train.py --hub-token '{S3CRET}'",
    f"python train.py --hub_token=\"{S3CRET}\"",
    f"python train.py --token {S3CRET}",
    f"python train.py --key {S3CRET}",
    f"mysqldump --password={S3CRET} db",
    f"tool --client-secret {S3CRET}",
    f"['train.py', '--token', '{S3CRET}']",
    f"env: WANDB_API_KEY={S3CRET} HF_HOME=/x",
    f"export AWS_SECRET_ACCESS_KEY={S3CRET}",
    f"AWS_SESSION_TOKEN={S3CRET} python x.py",
    f"OPENAI_API_KEY={S3CRET}",
    f"SLURM_JWT={S3CRET}",
    f"MY_DB_PASSWORD={S3CRET},tail",
    f"Namespace(lr=0.1, hf_token='{S3CRET}', seed=1)",
    f'{{"api_key": "{S3CRET}", "lr": 0.1}}',
    f"hfToken: {S3CRET}",
    f"clientSecret={S3CRET}",
    f"password: {S3CRET}",
    f"hf_{'a1B2' * 9}",
    f"logged in with ghp_{'a1B2' * 9}",
    f"github_pat_{'a1B2_' * 9}",
    f"glpat-{'a1B2' * 5}",
    f"sk-proj-{'a1B2' * 9}",
    "xoxb-1234567890-abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2".lower(),
    f"local-{HEX40}",
    f"nvapi-{'a1B2' * 9}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
    f"Authorization: Bearer {S3CRET}",
    f"-H 'Authorization: Basic {S3CRET}='",
    f"'authorization': 'token {S3CRET}'",
    f"got Bearer {S3CRET}",
    f"postgresql://me:{S3CRET}@db.example.org/x",
    f"https://oauth2:{S3CRET}@github.com/team/repo.git",
    f"git clone https://:{S3CRET}@host/x",
    f"GET https://store/x.tar?X-Amz-Signature={S3CRET}&part=1",
    f"https://blob.core/x?sv=1&sig={S3CRET}",
    f"https://api/x?key={S3CRET}",
    f"https://api/x?access_token={S3CRET}#top",
    f"https://hooks.slack.com/services/T000/B000/{S3CRET}",
    f"https://discord.com/api/webhooks/123/{S3CRET}",
    f"https://api.telegram.org/bot123:{S3CRET}/send",
    f"curl -s -u me:{S3CRET} https://ntfy.sh/x",
    f"curl -u me:{S3CRET} https://ntfy.sh/x",
    f"curl --user me:{S3CRET} https://ntfy.sh/x",
    f"PGPASSWORD={S3CRET} psql -h db",
    f"MYSQL_PWD={S3CRET}",
    f"DB_PASS={S3CRET} SMTP_PASS=x",
    f"SSHPASS={S3CRET} sshpass -e ssh host",
    f"sshpass -p {S3CRET} ssh host",
    f"mysql -u me -p{S3CRET} db",
    f"Cookie: session={S3CRET}; path=/",
    f"-H 'Set-Cookie: id={S3CRET}'",
    f"wandb login {HEX40}",
    f"wandb: api key {HEX40}",
    f"machine api.wandb.ai login user password {S3CRET}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S3CRET}\n-----END OPENSSH PRIVATE KEY-----",
    f"-----BEGIN RSA PRIVATE KEY----- {S3CRET}",
    f"('WANDB_API_KEY', '{HEX40}')",
    f"setenv WANDB_API_KEY {HEX40}",
    f"setenv HF_TOKEN {S3CRET}",
    f"https://{HEX40}@github.com/team/repo",
    f"https://{HEX40}:x-oauth-basic@github.com/team/repo",
    f"pulled with dckr_pat_{'a1B2' * 6}",
    f"npm_{'a1B2' * 9}",
    f"gsk_{'a1B2' * 13}",
    f"xai-{'a1B2' * 20}",
    f"api_org_{'a1B2' * 8}",
    f"hvs.{'a1B2' * 20}",
    f"ya29.{'a1B2' * 30}",
]  # fmt: skip

INNOCENT = [
    f"HEAD is now at {HEX40}",
    f"commit {HEX40} on wandb branch",
    "wandb: Run data is saved locally in wandb/run-20250108_210048-jqfhry9y",
    "wandb: View run at https://wandb.ai/team/project/runs/jqfhry9y",
    "wandb: Currently logged in as: me (team). Use `wandb login --relogin` to force relogin",
    "tokens_per_sec=182000 tokens_per_sec_per_gpu: 699",
    "tok/s=125,000 | mfu=52.3%",
    "consumed_tokens: 480B | time_per_iteration_ms: 8.79K | tokens_per_sec: 182K",
    "torchrun --nproc_per_node=8 train.py --tokenizer=meta-llama/Llama-3.1-8B --num-key-value-heads 8",
    "--tokenizer-type SentencePieceTokenizer --tokenizer-model /fsx/tok.model",
    "--max-tokens 4096 --num_tokens=100000",
    "--text-key content --json-keys text --sort-key length",
    "--token-file /etc/token --password-file /run/x --key-path /a",
    "--use-secrets --resume",
    "--token --resume",
    "--pad-token '<|endoftext|>' --eos_token </s>",
    "pad_token=<pad> pad_token_id=0 eos_token: 50256",
    "key_padding_mask=None, key=query, value=value, need_weights=False",
    "KeyError: 'model.embed_tokens.weight'",
    "loss_per_token: 2.1234 | per_token_loss: 2.12",
    "size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096])",
    "RuntimeError: key: expected a tensor",
    "<All keys matched successfully>",
    "Missing key(s) in state_dict: \"a.b\", \"c.d\"",
    "https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json?download=true",
    "tcp://10.0.0.1:29500 and s3://bucket/ckpt/step-1000",
    "ssh://git@github.com/team/repo",
    "https://git@github.com/team/repo and http://gpu-cluster-login-node-001:8080/metrics@now",
    "setenv CUDA_VISIBLE_DEVICES 0 and setenv HF_TOKEN $HF_TOKEN",
    "risk-adjusted, task-specific-benchmark-2024-version, disk-io-benchmark-2024-version",
    "author: me, authenticated: yes",
    "[2025-10-30 14:32:58] iteration 45/99 | lm loss: 2.1E+00 | grad norm: 1.0",
    "monkey=banana turkey: roasted keyboard=qwerty",
    "SLURM_JOB_ID=123 KEYBOARD=us",
    "tk_dispatch attn_key=0 q_key=1",
    "PWD=/fsx/me OLDPWD=/fsx",
    "forward_pass=0.31 backward_pass: 0.52 num_pass=three bypass=auto compass=north",
    "mysql -u me -p db",
    "the cookie jar is full: 3 cookies",
    "Epoch 0:   4%|▍         | 350/8000 [00:09<03:23, 37.56it/s, v_num=0]",
]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_masked(text: str) -> None:
    masked = scrub(text)
    assert MASK in masked
    for part in (S3CRET, HEX40, "a1B2a1B2", "1234567890-abc", "IOSFODNN7", "agqdq7mv", "eyJzdWIi"):
        assert part not in masked


@pytest.mark.parametrize("text", INNOCENT)
def test_training_text_is_left_alone(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("--lr 1 --token=abc9 --seed 2", "--lr 1 --token=*** --seed 2"),
        ("f(api_key='abc', x=1)", "f(api_key='***', x=1)"),
        ("(password=abc9)", "(password=***)"),
        ("https://u:p@h/x?a=1&key=k#t", "https://u:***@h/x?a=1&key=***#t"),
        ("https://hooks.slack.com/services/T/B/X now", "https://hooks.slack.com/*** now"),
        ("Authorization: Bearer abcd1234", "Authorization: Bearer ***"),
        (f"x local-{HEX40} y", "x local-*** y"),
    ],
)
def test_only_the_secret_is_masked(text: str, masked: str) -> None:
    assert scrub(text) == masked


@pytest.mark.parametrize(
    "lines",
    [
        ["Authorization: Bearer", S3CRET, "done"],
        ["> Authorization:", f"  Bearer {S3CRET}"],
        ["machine api.wandb.ai", "  login user", f"  password {S3CRET}"],
        ["HF_TOKEN:", f"  {S3CRET}"],
    ],
)
def test_a_secret_is_masked_behind_the_line_that_announces_it(lines: list[str]) -> None:
    for several in (lines, tuple(lines)):
        masked = scrub_all(several)
        assert not any(S3CRET in line for line in masked)
        assert len(masked) == len(lines)
        assert MASK in "".join(masked)


PIECES = st.sampled_from([
    "token", "key", "--", "-", "=", ":", " ", "'", '"', "password", "secret_", "api_", "abc123def", MASK, "://", "@",
    "/", "?", "&", "sig=", "Bearer ", "Authorization: ", "hf_", "a1" * 12, HEX40, "wandb login ", "curl ", "-u ", ",",
    "Cookie: ", "mysql ", "-p", "DB_PASS",
    ")", "{", "\\", "\n", "$", "<", "eyJ", ".", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "é",
    "hooks.slack.com/", "machine a login b password ",
])  # fmt: skip


@given(st.one_of(st.lists(PIECES, max_size=14).map("".join), st.text()))
@example("Set-Cookie: sid=abc123def; Path=/")
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    once = scrub(text)
    assert scrub(once) == once


@given(st.lists(PIECES, max_size=6).map("".join), st.sampled_from(["--password=", "API_TOKEN=", "--api-key "]))
def test_a_secret_is_masked_whatever_stands_before_it(before: str, name: str) -> None:
    assert S3CRET not in scrub(f"{before} {name}{S3CRET}")


def test_time_grows_with_the_length_and_no_faster() -> None:
    def took(text: str) -> float:
        best = 1.0
        for _ in range(3):
            started = time.process_time()
            scrub(text)
            best = min(best, time.process_time() - started)
        return best

    for attack in (
        "key",
        "--key ",
        "token=",
        "://:",
        "curl -u ",
        "a" * 80,
        "machine a login b ",
        "wandb login ",
        "'--key'",
    ):
        short, long = "token= " + attack * (4_000 // len(attack)), "token= " + attack * (32_000 // len(attack))
        assert took(long) < 0.005 + 30 * took(short), attack


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ({"hf_token": "abc", "pad_token": "<pad>"}, {"hf_token": "***", "pad_token": "<pad>"}),
        ({"password": ""}, {"password": ""}),
        (("eval", "--api-key", "abc", "--step", "7"), ("eval", "--api-key", "***", "--step", "7")),
        ([-1, "token", None, 2.5], [-1, "token", None, 2.5]),
    ],
)  # fmt: skip
def test_in_plain_values_the_name_of_a_field_or_a_flag_counts(value: object, masked: object) -> None:
    assert scrub_all(value) == masked
    assert scrub_all(masked) == masked
