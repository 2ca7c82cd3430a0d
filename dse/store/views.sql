-- Views for the usual questions, made again whenever a table has grown a column.

-- The last run of each study that came to its end.
CREATE OR REPLACE VIEW last_run AS
SELECT run.*, study.name AS study
FROM run JOIN study USING (study_id)
WHERE run.status = 'done'
QUALIFY row_number() OVER (PARTITION BY study.name ORDER BY run.started_at DESC, run.run_id) = 1;

-- The mean of each point's metrics over its replicates.
CREATE OR REPLACE VIEW point_result AS
SELECT point_id, physics_id, count(*) AS n_replicates, {means}
FROM result WHERE status = 'ok' GROUP BY point_id, physics_id;

-- What the last run of each study answered: its simulated points. `answer` holds all of a row, so
-- that one costs no look at the results.
CREATE OR REPLACE VIEW answered AS
SELECT last_run.study, answer.* EXCLUDE (run_id, physics_id, point, structure, status, error)
FROM answer JOIN last_run USING (run_id)
WHERE answer.status = 'ok';

-- Its front.
CREATE OR REPLACE VIEW front AS
SELECT * EXCLUDE (on_front, front_rank) FROM answered WHERE on_front;

-- Per study and GPU the feasible point of the highest output rate per GPU.
CREATE OR REPLACE VIEW best_per_gpu AS
WITH highest AS (
    SELECT study, gpu, max(output_tok_per_s_per_gpu) AS output_tok_per_s_per_gpu
    FROM answered WHERE feasible GROUP BY study, gpu
)
SELECT * EXCLUDE (feasible, on_front, front_rank, is_tie)
FROM answered SEMI JOIN highest USING (study, gpu, output_tok_per_s_per_gpu)
WHERE feasible
QUALIFY row_number() OVER (PARTITION BY study, gpu ORDER BY point_id) = 1;

-- Both in one.
CREATE OR REPLACE VIEW notable AS
SELECT *, 'front' AS place FROM front
UNION ALL BY NAME
SELECT *, 'best of its GPU' AS place FROM best_per_gpu;

-- What removed points of each study, and how many.
CREATE OR REPLACE VIEW why_not AS
SELECT last_run.study, verdict.* EXCLUDE (run_id)
FROM last_run JOIN verdict USING (run_id);

-- The points that came nearest to being feasible.
CREATE OR REPLACE VIEW near_misses AS
SELECT last_run.study, near_miss.* EXCLUDE (run_id), point.* EXCLUDE (point_id)
FROM last_run JOIN near_miss USING (run_id) LEFT JOIN point USING (point_id);

-- One row a kept request: the share that meets an SLO is a count over a WHERE.
CREATE OR REPLACE VIEW request_latency AS
SELECT point_id, replicate, physics_id,
       if(ttft_code = 0, NULL, 2 ** ((ttft_code - 1) / 2048 - 16)) AS ttft_s,
       if(tpot_code = 0, NULL, 2 ** ((tpot_code - 1) / 2048 - 16)) AS tpot_s,
       if(e2e_code = 0, NULL, 2 ** ((e2e_code - 1) / 2048 - 16)) AS e2e_s
FROM (
    SELECT point_id, replicate, physics_id, unnest(ttft_code)::DOUBLE AS ttft_code,
           unnest(tpot_code)::DOUBLE AS tpot_code, unnest(e2e_code)::DOUBLE AS e2e_code
    FROM latency_sketch
);
