"""The tables of the ledger, as numbered migrations: a file of an earlier version is migrated when it is opened."""

from __future__ import annotations

import hashlib
import json
import sqlite3

from trainmon.lib import TrainmonError

TIMESTAMP = "strftime('%Y-%m-%d %H:%M:%f000+00:00', {}, 'unixepoch')"
"""Seconds since 1970 as the text that the ledger stores for times, in SQLite's words."""

ONE_PER_START = """
    SELECT * FROM main.training_attempts WHERE job_id IS NULL OR started_at IS NULL OR attempt_id IN (
        SELECT attempt_id FROM (
            SELECT attempt_id, cluster, restart, first_value(cluster) OVER own AS first_cluster,
                first_value(restart) OVER own AS first_restart
            FROM (
                SELECT attempt_id, cluster, restart, started_at, job_id, submitted_at, ended_at, is_reconstructed,
                    coalesce(
                        nullif(nodes, '[]'), max(nodes) OVER (PARTITION BY started_at, job_id, submitted_at)
                    ) AS known_nodes
                FROM main.training_attempts WHERE job_id IS NOT NULL
            ) WINDOW own AS (
                PARTITION BY started_at, job_id, submitted_at, known_nodes
                ORDER BY ended_at IS NULL, is_reconstructed, attempt_id
            )
        ) WHERE cluster = first_cluster AND restart IS first_restart
    )
"""
"""The attempts, each start once: programs with other configs wrote the same job under other names. Those rows stay; of
several, one that has ended counts, then one that was watched."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE actions (
            id TEXT PRIMARY KEY,
            asked_at REAL NOT NULL,
            who TEXT NOT NULL,
            from_host TEXT NOT NULL,
            verb TEXT NOT NULL,
            subject TEXT NOT NULL,
            run TEXT,
            job TEXT,
            cluster TEXT NOT NULL,
            host TEXT NOT NULL,
            title TEXT NOT NULL,
            command TEXT NOT NULL,
            why TEXT NOT NULL,
            status TEXT NOT NULL,
            done_at REAL,
            outcome TEXT NOT NULL,
            settled_at REAL,
            note TEXT,
            record TEXT NOT NULL
        )
        """,
        "CREATE INDEX actions_by_time ON actions (asked_at)",
        "CREATE INDEX actions_watched ON actions (asked_at) WHERE settled_at IS NULL",
        """
        CREATE TABLE action_texts (
            action_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            host TEXT NOT NULL,
            path TEXT NOT NULL,
            at REAL NOT NULL,
            text TEXT NOT NULL,
            PRIMARY KEY (action_id, kind, host, path)
        )
        """,
    ),
    (
        """
        CREATE TABLE alerts (
            id TEXT PRIMARY KEY,
            rule TEXT NOT NULL,
            subject TEXT NOT NULL,
            severity TEXT NOT NULL,
            phase TEXT NOT NULL,
            data TEXT NOT NULL,
            summary TEXT NOT NULL,
            cluster TEXT NOT NULL,
            run TEXT,
            node TEXT,
            since REAL NOT NULL,
            fired_at REAL,
            resolved_at REAL,
            acknowledged_by TEXT,
            muted_until REAL,
            written_at REAL NOT NULL,
            alert TEXT NOT NULL
        )
        """,
        "CREATE INDEX alerts_open ON alerts (since) WHERE phase != 'resolved'",
        "CREATE INDEX alerts_resolved ON alerts (resolved_at)",
        """
        CREATE TABLE alert_history (
            number INTEGER PRIMARY KEY,
            at REAL NOT NULL,
            alert_id TEXT NOT NULL,
            what TEXT NOT NULL,
            words TEXT NOT NULL
        )
        """,
        "CREATE INDEX alert_history_by_time ON alert_history (at)",
        """
        CREATE TABLE notices (
            key TEXT PRIMARY KEY,
            kind TEXT NOT NULL,
            severity TEXT NOT NULL,
            at REAL NOT NULL,
            reason TEXT NOT NULL,
            alerts TEXT NOT NULL,
            notice TEXT NOT NULL
        )
        """,
        "CREATE INDEX notices_by_time ON notices (at)",
        """
        CREATE TABLE outbox (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL REFERENCES notices (key),
            channel TEXT NOT NULL,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            made_at REAL NOT NULL,
            next_at REAL NOT NULL,
            sent_at REAL,
            changed_at REAL NOT NULL,
            because TEXT,
            words TEXT,
            UNIQUE (key, channel)
        )
        """,
        "CREATE INDEX outbox_waiting ON outbox (channel, id) WHERE state IN ('waiting', 'leased')",
        "CREATE INDEX outbox_by_time ON outbox (changed_at)",
        """
        CREATE TABLE silences (
            id TEXT PRIMARY KEY,
            rule TEXT,
            subject TEXT,
            run TEXT,
            node TEXT,
            until REAL NOT NULL,
            by TEXT NOT NULL,
            why TEXT NOT NULL,
            made_at REAL NOT NULL,
            ended_at REAL,
            silence TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE orders (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            at REAL NOT NULL,
            verb TEXT NOT NULL,
            by TEXT NOT NULL,
            alert TEXT,
            why TEXT NOT NULL,
            via TEXT NOT NULL,
            "order" TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE duty (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            holder TEXT NOT NULL,
            pid INTEGER NOT NULL,
            host TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            started_at REAL NOT NULL,
            last_tick_at REAL,
            written_at REAL NOT NULL,
            duty TEXT NOT NULL
        )
        """,
        "CREATE TABLE memory (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ),
    (
        """
        CREATE TABLE training_attempts (
            attempt_id TEXT PRIMARY KEY,
            run_id TEXT NOT NULL,
            cluster TEXT NOT NULL,
            model_family TEXT,
            labels TEXT NOT NULL,
            job_id TEXT,
            array_id INTEGER,
            restart INTEGER,
            submitted_at TEXT,
            wandb_id TEXT,
            pid INTEGER,
            nodes TEXT NOT NULL,
            gpu_uuids TEXT NOT NULL,
            gpus INTEGER,
            started_at TEXT,
            first_step_at TEXT,
            ended_at TEXT,
            seen_at TEXT NOT NULL,
            gpu_seconds REAL,
            first_step INTEGER,
            last_step INTEGER,
            target_step INTEGER,
            resumed_from INTEGER,
            resumed_words TEXT,
            last_committed_step INTEGER,
            steps_lost INTEGER,
            command TEXT,
            config_hash TEXT,
            config_path TEXT,
            git_commit TEXT,
            container_digest TEXT,
            data_manifest TEXT,
            evaluator_versions TEXT NOT NULL,
            exit_code INTEGER,
            signal INTEGER,
            scheduler_state TEXT,
            termination_reason TEXT,
            cause_family TEXT,
            confidence TEXT,
            fingerprint TEXT,
            evidence TEXT NOT NULL,
            advice TEXT,
            retry TEXT,
            retry_decision TEXT,
            budget_spent INTEGER,
            is_reconstructed INTEGER NOT NULL,
            missing TEXT NOT NULL,
            log_host TEXT,
            log_path TEXT,
            log_tail TEXT,
            written_at TEXT NOT NULL,
            attempt TEXT NOT NULL
        )
        """,
        "CREATE INDEX training_attempts_by_start ON training_attempts (started_at)",
        "CREATE INDEX training_attempts_by_end ON training_attempts (coalesce(ended_at, seen_at))",
        "CREATE INDEX training_attempts_open ON training_attempts (seen_at) WHERE ended_at IS NULL",
    ),
    (
        """
        CREATE TABLE evals (
            run_id TEXT NOT NULL,
            digest TEXT NOT NULL,
            step INTEGER,
            checkpoint TEXT,
            evaluator TEXT,
            image_digest TEXT,
            task_set TEXT,
            task_set_version TEXT,
            decoding TEXT,
            judge TEXT,
            rubric_version TEXT,
            results TEXT,
            raw_outputs TEXT,
            evaluated_at TEXT,
            written_at TEXT NOT NULL,
            eval TEXT NOT NULL,
            PRIMARY KEY (run_id, digest)
        )
        """,
        "CREATE INDEX evals_by_time ON evals (written_at)",
        f"""
        INSERT OR IGNORE INTO evals
        SELECT substr(action_id, 7), digest_of(one.value),
            json_extract(one.value, '$.step'), json_extract(one.value, '$.checkpoint'),
            json_extract(one.value, '$.evaluator'), json_extract(one.value, '$.image_digest'),
            json_extract(one.value, '$.task_set'), json_extract(one.value, '$.task_set_version'),
            json_extract(one.value, '$.decoding'), json_extract(one.value, '$.judge'),
            json_extract(one.value, '$.rubric_version'), json_extract(one.value, '$.results'),
            json_extract(one.value, '$.raw_outputs'), json_extract(one.value, '$.evaluated_at'),
            {TIMESTAMP.format("at")}, one.value
        FROM action_texts, json_each(CASE WHEN json_valid(text) THEN text ELSE '[]' END) AS one
        WHERE kind = 'evals' AND one.type = 'object' ORDER BY at, action_texts.rowid, one.key
        """,
        """
        CREATE TABLE gpu_hours (
            attempt_id TEXT NOT NULL,
            node TEXT NOT NULL,
            ended_at TEXT NOT NULL,
            written_at TEXT NOT NULL,
            gpu_hour TEXT NOT NULL,
            PRIMARY KEY (attempt_id, node)
        )
        """,
        "CREATE INDEX gpu_hours_by_time ON gpu_hours (written_at)",
        f"""
        INSERT OR IGNORE INTO gpu_hours
        SELECT action_id, host, {TIMESTAMP.format("json_extract(text, '$.ended_at')")}, {TIMESTAMP.format("at")}, text
        FROM action_texts WHERE kind = 'gpu-hour' AND json_valid(text) AND json_type(text, '$.ended_at') IS NOT NULL
        """,
        "DELETE FROM action_texts WHERE kind = 'evals' AND json_valid(text)",
        "DELETE FROM action_texts WHERE kind = 'gpu-hour' AND action_id IN (SELECT attempt_id FROM gpu_hours)",
    ),
    (
        "ALTER TABLE training_attempts ADD COLUMN start_is_estimated INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE evals ADD COLUMN cluster TEXT",
        """
        UPDATE evals SET cluster = (
            SELECT CASE WHEN count(DISTINCT one.cluster) = 1 THEN min(one.cluster) END
            FROM training_attempts AS one WHERE one.run_id = evals.run_id
        )
        """,
    ),
)
"""Most columns are for people with SQL; the last column of a row is the whole value as JSON. Entries are added, never
changed. An outbox row is one notice for one channel; `because` is why a channel stands in for another."""

VERSION = len(MIGRATIONS)


class NewerLedger(TrainmonError):
    """A file of a later version of this program: it can be read, and is never written."""


def migrate(connection: sqlite3.Connection, file: str) -> None:
    """Migrate a file to this version, one step per transaction.

    Raises: NewerLedger: when the file has a later version.
    """
    connection.create_function("digest_of", 1, digest_of, deterministic=True)
    while (version := version_of(connection)) != VERSION:
        if version > VERSION:
            raise NewerLedger(
                f"a newer trainmon-tui made {file} (version {version}; this program knows {VERSION}): "
                "nothing is written to it",
                hint="use the newer program here, too, or set another XDG_STATE_HOME",
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            if version_of(connection) == version:  # another process may have done it meanwhile
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def digest_of(text: str) -> str:
    """The digest of a JSON object. The order of its fields does not count, nor do those that are null."""
    facts = {name: value for name, value in json.loads(text).items() if value is not None}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a file: how many migrations it has."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)
