-- Tables of a store. SI units, named by each column; ids are hexadecimal blake2b-128.
-- `point` and `result` grow a column when a row brings one that they lack (dse/store/schema.py), and
-- so does `answer` with the columns of both and a study's objectives; only what every row has is declared here.
-- Tables that grow with the points have a key without an index: an index of a million keys costs
-- more than the rows. Who writes has the file alone and adds no key twice (dse/store/schema.py).

CREATE TABLE meta (
    application    VARCHAR NOT NULL,          -- 'dse': whose file this is
    schema_version INTEGER NOT NULL
);

CREATE TABLE study (
    study_id VARCHAR PRIMARY KEY,             -- digest of the resolved study
    name     VARCHAR NOT NULL,                -- the file's stem
    question VARCHAR,
    path     VARCHAR,                         -- as the user gave it
    text     VARCHAR                          -- the YAML with includes and overrides applied
);

CREATE TABLE run (
    run_id              VARCHAR PRIMARY KEY,
    study_id            VARCHAR NOT NULL,
    started_at          TIMESTAMP NOT NULL,   -- UTC
    ended_at            TIMESTAMP,            -- UTC; null while running or after a kill
    status              VARCHAR NOT NULL,     -- running, done, interrupted, failed
    arguments           VARCHAR,
    versions            VARCHAR,              -- JSON: dse, Python, libraries
    git                 VARCHAR,              -- revision of the study's folder, '+' if it was changed
    catalog_digest      VARCHAR,
    physics_id          VARCHAR,
    n_candidates        BIGINT,
    n_survivors         BIGINT,
    n_simulated         BIGINT,
    n_reused            BIGINT,
    n_dropped_by_bound  BIGINT,
    n_failed            BIGINT,
    cpu_s               DOUBLE,
    wall_s              DOUBLE,
    peak_rss_bytes      DOUBLE,
    record              VARCHAR               -- JSON: `columns` of its answer
);

CREATE TABLE deployment (
    deployment_id VARCHAR NOT NULL,           -- key; digest of all that the simulator reads of it
    facts         VARCHAR                     -- its canonical text
);

CREATE TABLE point (
    point_id      VARCHAR NOT NULL,           -- key; digest of deployment, workload and load
    deployment_id VARCHAR,
    model         VARCHAR,
    gpu           VARCHAR,
    n_gpus        BIGINT
);

CREATE TABLE result (                         -- key: point_id, replicate, physics_id
    point_id   VARCHAR NOT NULL,
    replicate  INTEGER NOT NULL,
    physics_id VARCHAR NOT NULL,              -- digest of the simulator's version and coefficients
    status     VARCHAR NOT NULL,              -- ok, error (the point raised), crashed (killed its workers)
    error      VARCHAR,
    output_tok_per_s_per_gpu DOUBLE           -- tok/s per GPU of all pools
);

CREATE TABLE latency_sketch (                 -- key: point_id, replicate, physics_id
    point_id   VARCHAR NOT NULL,
    replicate  INTEGER NOT NULL,
    physics_id VARCHAR NOT NULL,
    ttft_code  USMALLINT[],                   -- one entry a request; 0: not defined, else
    tpot_code  USMALLINT[],                   --   2 ^ ((code − 1) / 2048 − 16) s
    e2e_code   USMALLINT[],
    n_requests BIGINT,                        -- measured; every k-th is kept where they are many
    n_rejected BIGINT                         -- refused by the engine: they meet no SLO
);

CREATE TABLE verdict (
    run_id   VARCHAR NOT NULL,
    kind     VARCHAR NOT NULL,                -- wall, screen, legality, constraint
    name     VARCHAR NOT NULL,
    axis     VARCHAR NOT NULL,                -- '' for the whole space
    value    VARCHAR NOT NULL,
    n_points BIGINT NOT NULL,
    PRIMARY KEY (run_id, kind, name, axis, value)
);

CREATE TABLE near_miss (
    run_id           VARCHAR NOT NULL,
    point_id         VARCHAR NOT NULL,
    killed_by        VARCHAR NOT NULL,
    demand           DOUBLE,                  -- in `unit`
    "limit"          DOUBLE,                  -- in `unit`
    unit             VARCHAR,
    margin           DOUBLE,                  -- demand / limit − 1
    nearest_feasible VARCHAR,
    PRIMARY KEY (run_id, point_id, killed_by)
);

CREATE TABLE answer (                         -- key: run_id, point_id
    run_id     VARCHAR NOT NULL,
    point_id   VARCHAR NOT NULL,
    physics_id VARCHAR,                       -- of the results that it was judged by
    point      UBIGINT,                       -- row of the study's enumeration
    structure  UBIGINT,                       -- and its structure there
    status     VARCHAR,                       -- ok, or of its first replicate that failed
    error      VARCHAR,
    feasible   BOOLEAN,                       -- keeps the SLO and the constraints
    on_front   BOOLEAN NOT NULL,
    front_rank INTEGER,                       -- 0 is the front
    is_tie     BOOLEAN,                       -- its replicates overlap those of another member
    deployment_id VARCHAR,
    gpu        VARCHAR,
    n_replicates BIGINT,                      -- that its metrics and objectives are means of
    output_tok_per_s_per_gpu DOUBLE           -- tok/s per GPU of all pools
);

CREATE TABLE certificate (
    run_id VARCHAR PRIMARY KEY,
    valid  BOOLEAN NOT NULL,
    text   VARCHAR NOT NULL                   -- JSON: method, tolerance, counts, rounds, violations
);

CREATE TABLE proof (
    run_id       VARCHAR NOT NULL,
    point        UBIGINT NOT NULL,            -- row of the study's enumeration
    dominated_by VARCHAR NOT NULL,            -- point_id of the simulated point that beats its bound
    rung         VARCHAR NOT NULL,            -- hardware or engine: whose optimistic vector it was
    PRIMARY KEY (run_id, point)
);

CREATE TABLE hypervolume (
    run_id      VARCHAR NOT NULL,
    n_simulated BIGINT NOT NULL,
    hypervolume DOUBLE NOT NULL,              -- of the feasible front against the run's reference point
    PRIMARY KEY (run_id, n_simulated)
);

CREATE TABLE kernel_time (
    kernel_id VARCHAR PRIMARY KEY,            -- digest of op, GPU and coefficients
    gpu       VARCHAR,
    family    VARCHAR,
    op        VARCHAR,
    seconds   DOUBLE                          -- s
);

CREATE TABLE measurement (
    measurement_id VARCHAR PRIMARY KEY,
    source         VARCHAR,
    point_id       VARCHAR,
    metric         VARCHAR,
    value          DOUBLE                     -- in the metric's SI unit
);

CREATE TABLE calibration (
    calibration_id VARCHAR PRIMARY KEY,
    family         VARCHAR,
    n_rows         BIGINT,
    mape           DOUBLE,                    -- 0–1
    median_ape     DOUBLE,                    -- 0–1
    provenance     VARCHAR
);

CREATE TABLE price (
    run_id       VARCHAR NOT NULL,
    gpu          VARCHAR NOT NULL,
    usd_per_hour DOUBLE NOT NULL,             -- of one GPU
    source       VARCHAR,
    PRIMARY KEY (run_id, gpu, usd_per_hour)
);
