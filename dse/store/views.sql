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

-- What the last run of each study answered: its simulated points.
CREATE OR REPLACE VIEW answered AS
SELECT last_run.study, answer.* EXCLUDE (run_id, physics_id, gpu, rate),
       point.* EXCLUDE (point_id), point_result.* EXCLUDE (point_id, physics_id)
FROM last_run
JOIN answer USING (run_id)
JOIN point USING (point_id)
JOIN point_result ON point_result.point_id = answer.point_id
                 AND point_result.physics_id = answer.physics_id;

-- What of it is most asked for. Chosen first, so that only the chosen points' results are averaged.
CREATE OR REPLACE VIEW notable AS
WITH members AS (
    SELECT last_run.study, answer.* EXCLUDE (run_id) FROM last_run JOIN answer USING (run_id)
),
highest AS (SELECT study, gpu, max(rate) AS rate FROM members WHERE feasible GROUP BY study, gpu),
chosen AS MATERIALIZED (
    SELECT *, 'front' AS place FROM members WHERE on_front
    UNION ALL
    SELECT *, 'best of its GPU' AS place
    FROM members SEMI JOIN highest USING (study, gpu, rate) WHERE feasible
    QUALIFY row_number() OVER (PARTITION BY study, gpu ORDER BY rate DESC, point_id) = 1
),
means AS (
    SELECT point_id, physics_id, count(*) AS n_replicates, {means}
    FROM result SEMI JOIN chosen USING (point_id, physics_id)
    WHERE status = 'ok' GROUP BY point_id, physics_id
)
SELECT chosen.* EXCLUDE (physics_id, on_front, front_rank, gpu, rate), point.* EXCLUDE (point_id),
       means.* EXCLUDE (point_id, physics_id)
FROM chosen
JOIN point USING (point_id)
JOIN means ON means.point_id = chosen.point_id AND means.physics_id = chosen.physics_id;

-- Its front.
CREATE OR REPLACE VIEW front AS
SELECT * EXCLUDE (place) FROM notable WHERE place = 'front';

-- Per study and GPU the feasible point of the highest output rate per GPU.
CREATE OR REPLACE VIEW best_per_gpu AS
SELECT * EXCLUDE (place, feasible, is_tie) FROM notable WHERE place = 'best of its GPU';

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
