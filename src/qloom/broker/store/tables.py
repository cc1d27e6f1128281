"""The tables of the broker's store. Times are whole microseconds of the broker's clock."""

from __future__ import annotations

VERSION = 2

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE tasks (
    number INTEGER PRIMARY KEY,          -- in the order they were accepted
    id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL, project TEXT NOT NULL, device TEXT NOT NULL,
    session TEXT, job TEXT NOT NULL, name TEXT NOT NULL,
    key TEXT, digest TEXT NOT NULL,      -- the idempotency key, and what it was used for
    expected_s REAL NOT NULL, priority INTEGER NOT NULL,
    max_wait_s REAL, time_limit_s REAL, set_up TEXT,
    state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    unwanted INTEGER NOT NULL DEFAULT 0, -- it is being taken back from its device: 1 for good, 2 to be queued again
    submitted_us INTEGER NOT NULL, started_us INTEGER, executing_us INTEGER, ended_us INTEGER,
    billed_s REAL,
    held_us INTEGER,                     -- since when an administrator holds it
    uncounted_us INTEGER NOT NULL DEFAULT 0, -- from its submission until its wait began again
    spent INTEGER NOT NULL DEFAULT 0,    -- attempts before it was last queued anew
    places TEXT,                         -- the devices that it may run on, if there are several
    ran_us INTEGER NOT NULL DEFAULT 0,   -- execution that counted before `counted_us`
    counted_us INTEGER                   -- since when execution counts; NULL while the device is away
);
CREATE UNIQUE INDEX tasks_by_key ON tasks (user, project, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_live ON tasks (number) WHERE ended_us IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_us) WHERE ended_us IS NOT NULL;

CREATE TABLE payloads (task TEXT PRIMARY KEY, envelope TEXT NOT NULL);
CREATE TABLE results (task TEXT PRIMARY KEY, body TEXT NOT NULL);

CREATE TABLE handovers (                 -- each time a task was given to a device
    token TEXT PRIMARY KEY, task TEXT NOT NULL, device TEXT NOT NULL,
    device_id TEXT,                      -- the device's own id
    began_us INTEGER NOT NULL, ended_us INTEGER, outcome TEXT, billed_s REAL
);
CREATE INDEX handovers_open ON handovers (task) WHERE ended_us IS NULL;
CREATE INDEX handovers_of_device ON handovers (device, device_id);

CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL, project TEXT NOT NULL, device TEXT NOT NULL, hold TEXT NOT NULL, job TEXT NOT NULL,
    key TEXT, state TEXT NOT NULL,
    requested_us INTEGER NOT NULL, opened_us INTEGER, closed_us INTEGER,
    turn_us INTEGER NOT NULL DEFAULT 0,  -- when a task of it was last started
    shared INTEGER NOT NULL DEFAULT 0,   -- whether all members of its project may use it
    reason TEXT NOT NULL DEFAULT ''      -- why it was closed, if nobody asked for it
);
CREATE UNIQUE INDEX sessions_by_key ON sessions (user, project, key) WHERE key IS NOT NULL;

CREATE TABLE projects (name TEXT PRIMARY KEY, used_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE devices (name TEXT PRIMARY KEY, drained INTEGER NOT NULL DEFAULT 0, shares INTEGER) WITHOUT ROWID;
"""

# What today's columns hold for rows that an older broker has written, where that is not their default.
FILL = "UPDATE tasks SET counted_us = executing_us WHERE ended_us IS NULL AND counted_us IS NULL;"
