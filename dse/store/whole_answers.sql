-- Schema 2 → 3: an answer holds its points' axes and the means of their results. `incoming` is what
-- the views made of the answers that there are.

CREATE TABLE incoming AS
SELECT answer.* EXCLUDE (gpu, rate), 'ok' AS status, point.* EXCLUDE (point_id, deployment_id),
       means.* EXCLUDE (point_id, physics_id)
FROM answer
JOIN point USING (point_id)
JOIN point_result AS means ON means.point_id = answer.point_id
                          AND means.physics_id = answer.physics_id;
DROP TABLE answer;
CREATE TABLE answer (
    run_id VARCHAR NOT NULL, point_id VARCHAR NOT NULL, physics_id VARCHAR, point UBIGINT,
    structure UBIGINT, status VARCHAR, error VARCHAR, feasible BOOLEAN, on_front BOOLEAN NOT NULL,
    front_rank INTEGER, is_tie BOOLEAN, deployment_id VARCHAR, gpu VARCHAR, n_replicates BIGINT,
    output_tok_per_s_per_gpu DOUBLE
);
