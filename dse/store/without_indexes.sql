-- Schema 1 → 2: growing tables lose their index, and an answer says its GPU and rate.

CREATE TABLE answer_2 AS
SELECT answer.*, point.gpu, means.rate
FROM answer
LEFT JOIN point USING (point_id)
LEFT JOIN (
    SELECT point_id, physics_id, avg(output_tok_per_s_per_gpu) AS rate
    FROM result WHERE status = 'ok' GROUP BY ALL
) AS means ON means.point_id = answer.point_id AND means.physics_id = answer.physics_id;
DROP TABLE answer;
ALTER TABLE answer_2 RENAME TO answer;

CREATE TABLE deployment_2 AS FROM deployment;
DROP TABLE deployment;
ALTER TABLE deployment_2 RENAME TO deployment;

CREATE TABLE point_2 AS FROM point;
DROP TABLE point;
ALTER TABLE point_2 RENAME TO point;

CREATE TABLE result_2 AS FROM result;
DROP TABLE result;
ALTER TABLE result_2 RENAME TO result;

CREATE TABLE latency_sketch_2 AS FROM latency_sketch;
DROP TABLE latency_sketch;
ALTER TABLE latency_sketch_2 RENAME TO latency_sketch;
