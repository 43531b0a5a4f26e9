//! Devices that wait for somebody to let them in.

use cloister_management_api::KeyScope;
use sqlx::FromRow;

use super::{Change, Result, Store};

/// A device that begins to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewDeviceLogin<'a> {
    /// Hash of its code.
    pub(crate) device_code_hash: &'a str,
    /// What a person types.
    pub(crate) user_code: &'a str,
    /// What it calls itself.
    pub(crate) client: &'a str,
    /// What it asks to be allowed.
    pub(crate) scope: KeyScope,
    /// Hash of the key that it is to have.
    pub(crate) key_hash: &'a str,
    /// Beginning of that key.
    pub(crate) key_prefix: &'a str,
    /// When it waits no longer.
    pub(crate) expires_at_ms: i64,
}

/// A device that waits or waited.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(crate) struct DeviceLoginRow {
    /// What it calls itself.
    pub(crate) client: String,
    /// What it asks to be allowed.
    #[sqlx(try_from = "String")]
    pub(crate) scope: KeyScope,
    /// Hash of the key that it is to have.
    pub(crate) key_hash: String,
    /// Beginning of that key.
    pub(crate) key_prefix: String,
    /// When it waits no longer.
    pub(crate) expires_at_ms: i64,
    /// `approved`, `denied`, or nothing yet.
    pub(crate) decision: Option<String>,
}

const WAITING: &str = "SELECT client, scope, key_hash, key_prefix, expires_at_ms, decision FROM device_logins \
     WHERE user_code = $1 AND decision IS NULL AND expires_at_ms > $2";
const ASKING: &str = "SELECT client, scope, key_hash, key_prefix, expires_at_ms, decision FROM device_logins \
     WHERE device_code_hash = $1 AND expires_at_ms > $2";

impl Store {
    /// The device that shows a code and has not been decided on, unless it waits no longer.
    pub(crate) async fn waiting_device(
        &self,
        user_code: &str,
        now_ms: i64,
    ) -> Result<Option<DeviceLoginRow>> {
        Ok(sqlx::query_as(WAITING).bind(user_code).bind(now_ms).fetch_optional(&self.pool).await?)
    }

    /// The device with a code, unless it waits no longer.
    pub(crate) async fn asking_device(
        &self,
        device_code_hash: &str,
        now_ms: i64,
    ) -> Result<Option<DeviceLoginRow>> {
        Ok(sqlx::query_as(ASKING).bind(device_code_hash).bind(now_ms).fetch_optional(&self.pool).await?)
    }
}

impl Change {
    /// Lets a device wait. Those that wait no longer are forgotten.
    pub(crate) async fn insert_device_login(&mut self, new: NewDeviceLogin<'_>, now_ms: i64) -> Result<()> {
        sqlx::query("DELETE FROM device_logins WHERE expires_at_ms <= $1")
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query(
            "INSERT INTO device_logins (device_code_hash, user_code, client, scope, key_hash, key_prefix, expires_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(new.device_code_hash)
        .bind(new.user_code)
        .bind(new.client)
        .bind(new.scope.as_str())
        .bind(new.key_hash)
        .bind(new.key_prefix)
        .bind(new.expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Decides on the device that shows a code; who it is, if it still waits and nobody was quicker.
    pub(crate) async fn decide_device(
        &mut self,
        user_code: &str,
        decision: &str,
        now_ms: i64,
    ) -> Result<Option<DeviceLoginRow>> {
        Ok(sqlx::query_as(
            "UPDATE device_logins SET decision = $2 \
             WHERE user_code = $1 AND decision IS NULL AND expires_at_ms > $3 \
             RETURNING client, scope, key_hash, key_prefix, expires_at_ms, decision",
        )
        .bind(user_code)
        .bind(decision)
        .bind(now_ms)
        .fetch_optional(&mut *self.transaction)
        .await?)
    }
}
