//! Statements of the queue. Lists of ids and of results are given as JSON; how a database reads that, and how it
//! skips what others hold, is where the two engines differ.

use serde::Serialize;

use super::super::Engine;

/// A list as the statements want it.
pub(super) fn json<T: Serialize>(list: &[T]) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// A statement with a list of ids as its first parameter: `{ids}` of it.
macro_rules! with_ids {
    ($engine:expr, $before:literal, $after:literal) => {
        match $engine {
            Engine::Sqlite => concat!($before, "(SELECT value FROM json_each($1))", $after),
            Engine::Postgres => {
                concat!(
                    $before,
                    "(SELECT CAST(value AS BIGINT) FROM json_array_elements_text($1::json))",
                    $after
                )
            }
        }
    };
}

/// A statement with results as its first parameter.
macro_rules! with_results {
    ($engine:expr, $before:literal, $after:literal) => {
        match $engine {
            Engine::Sqlite => concat!(
                $before,
                "(SELECT value ->> 'd' AS d, value ->> 'n' AS n, value ->> 'ended' AS ended, \
                 value ->> 'outcome' AS outcome, value ->> 'status' AS status, value ->> 'due' AS due, \
                 value ->> 'rs' AS rs, value ->> 'err' AS err, value ->> 'dur' AS dur FROM json_each($1)) AS v",
                $after
            ),
            Engine::Postgres => concat!(
                $before,
                "json_to_recordset($1::json) AS v(d BIGINT, n BIGINT, ended BIGINT, outcome TEXT, status TEXT, \
                 due BIGINT, rs BIGINT, err TEXT, dur BIGINT)",
                $after
            ),
        }
    };
}

/// Webhooks that have something due some time, each found by one look into the index however much it has; and of each
/// the first few deliveries that are due now.
macro_rules! candidates {
    ($due:literal) => {
        concat!(
            "WITH RECURSIVE w(id, n) AS (SELECT (SELECT MIN(a.webhook_id) FROM webhook_deliveries a \
             WHERE a.due_at_ms IS NOT NULL AND a.webhook_id > $1), CAST(1 AS BIGINT) UNION ALL \
             SELECT (SELECT MIN(b.webhook_id) FROM webhook_deliveries b WHERE b.due_at_ms IS NOT NULL \
             AND b.webhook_id > w.id), w.n + 1 FROM w WHERE w.id IS NOT NULL AND w.n < $2) \
             SELECT w.id, d.id FROM w LEFT JOIN ",
            $due,
            " WHERE w.id IS NOT NULL ORDER BY w.id"
        )
    };
}

pub(super) const fn candidates(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => candidates!(
            "webhook_deliveries d ON d.id IN (SELECT x.id FROM webhook_deliveries x WHERE x.webhook_id = w.id \
             AND x.due_at_ms <= $3 AND w.id NOT IN (SELECT value FROM json_each($5)) \
             ORDER BY x.due_at_ms, x.id LIMIT $4)"
        ),
        Engine::Postgres => candidates!(
            "LATERAL (SELECT x.id FROM webhook_deliveries x WHERE x.webhook_id = w.id AND x.due_at_ms <= $3 \
             AND w.id NOT IN (SELECT CAST(value AS BIGINT) FROM json_array_elements_text($5::json)) \
             ORDER BY x.due_at_ms, x.id LIMIT $4 FOR UPDATE SKIP LOCKED) AS d ON TRUE"
        ),
    }
}

pub(super) const fn details(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "SELECT d.id, d.webhook_id, d.tries + 1 AS number, d.attempts + 1 AS attempts, d.event_id, d.event_type, \
         e.data, e.created_at_ms AS happened_at_ms, s.slug AS workspace_slug, s.name AS workspace_name, w.url, \
         w.enabled, w.sealed_secret, w.previous_sealed_secret, w.previous_until_ms \
         FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id \
         JOIN workspaces s ON s.id = w.workspace_id LEFT JOIN webhook_events e ON e.id = d.event WHERE d.id IN ",
        " ORDER BY d.id"
    )
}

/// Takes `$1` until `$2`, now being `$3`. Where requests go is that of the webhook at this moment.
pub(super) const fn lease(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "UPDATE webhook_deliveries SET due_at_ms = NULL, lease_until_ms = $2, tries = tries + 1, \
         attempts = attempts + 1, request_url = (SELECT w.url FROM webhooks w \
         WHERE w.id = webhook_deliveries.webhook_id) WHERE due_at_ms <= $3 AND id IN ",
        ""
    )
}

/// Writes the attempts of what was just taken.
pub(super) const fn begin_attempts(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "INSERT INTO webhook_attempts (delivery_id, number, began_at_ms, response_status, error_message, \
         duration_ms) SELECT id, tries, $3, 0, '', 0 FROM webhook_deliveries \
         WHERE lease_until_ms = $2 AND id IN ",
        ""
    )
}

/// Takes hold of webhooks `$1`; then of deliveries `$1`, and of everything that webhooks in `$2` still have to be told:
/// in the order in which everybody does, webhooks before deliveries. On SQLite a change holds everything anyway.
pub(super) const fn locks(engine: Engine) -> Option<[&'static str; 2]> {
    match engine {
        Engine::Sqlite => None,
        Engine::Postgres => Some([
            "SELECT id FROM webhooks \
             WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_array_elements_text($1::json)) \
             ORDER BY id FOR NO KEY UPDATE",
            "SELECT id FROM webhook_deliveries \
             WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_array_elements_text($1::json)) \
             OR (status = 'pending' AND webhook_id IN \
             (SELECT CAST(value AS BIGINT) FROM json_array_elements_text($2::json))) ORDER BY id FOR UPDATE",
        ]),
    }
}

pub(super) const fn end_attempts(engine: Engine) -> &'static str {
    with_results!(
        engine,
        "UPDATE webhook_attempts SET ended_at_ms = v.ended, outcome = v.outcome, response_status = v.rs, \
         error_message = v.err, duration_ms = v.dur FROM ",
        " WHERE webhook_attempts.delivery_id = v.d AND webhook_attempts.number = v.n \
         AND webhook_attempts.outcome IS NULL"
    )
}

/// A delivery that was given up while it was under way stays so, unless it arrived.
pub(super) const fn end_leases(engine: Engine) -> &'static str {
    with_results!(
        engine,
        "UPDATE webhook_deliveries SET lease_until_ms = NULL, response_status = v.rs, error_message = v.err, \
         duration_ms = v.dur, due_at_ms = CASE WHEN webhook_deliveries.status = 'pending' THEN v.due END, \
         status = CASE WHEN webhook_deliveries.status = 'pending' OR v.status = 'success' THEN v.status \
         ELSE webhook_deliveries.status END, \
         delivered_at_ms = CASE WHEN v.status = 'success' THEN v.ended END FROM ",
        " WHERE webhook_deliveries.id = v.d AND webhook_deliveries.tries = v.n \
         AND webhook_deliveries.lease_until_ms IS NOT NULL"
    )
}

pub(super) const fn run_out(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => {
            "SELECT id, tries FROM webhook_deliveries WHERE lease_until_ms <= $1 ORDER BY lease_until_ms LIMIT $2"
        }
        Engine::Postgres => {
            "SELECT id, tries FROM webhook_deliveries WHERE lease_until_ms <= $1 ORDER BY lease_until_ms LIMIT $2 \
             FOR UPDATE SKIP LOCKED"
        }
    }
}

pub(super) const fn interrupt(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "UPDATE webhook_attempts SET ended_at_ms = $2, outcome = 'interrupted', \
         error_message = 'this service ended before there was an answer' \
         WHERE outcome IS NULL AND delivery_id IN ",
        ""
    )
}

pub(super) const fn due_again(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "UPDATE webhook_deliveries SET lease_until_ms = NULL, attempts = attempts - 1, \
         due_at_ms = CASE WHEN status = 'pending' THEN $2 END WHERE id IN ",
        ""
    )
}

/// Gives deliveries up, for the reason `$2`.
pub(super) const fn end(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "UPDATE webhook_deliveries SET status = 'failed', error_message = $2, due_at_ms = NULL \
         WHERE status = 'pending' AND id IN ",
        ""
    )
}

/// Makes due at `$2` what waited for deliveries, of `$1` that ended: of each order the first that is left.
pub(super) const fn next(engine: Engine) -> &'static str {
    with_ids!(
        engine,
        "UPDATE webhook_deliveries SET due_at_ms = $2 WHERE status = 'pending' AND due_at_ms IS NULL \
         AND lease_until_ms IS NULL AND id IN (SELECT (SELECT MIN(n.id) FROM webhook_deliveries n \
         WHERE n.webhook_id = e.webhook_id AND n.ordering = e.ordering AND n.status = 'pending') \
         FROM webhook_deliveries e WHERE e.status <> 'pending' AND e.id IN ",
        ")"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_json() {
        assert_eq!((json(&[1_i64, 2]), json::<i64>(&[])), ("[1,2]".to_owned(), "[]".to_owned()));
    }
}
