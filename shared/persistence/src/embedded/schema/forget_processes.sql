-- The file has one process at a time: whoever held anything here is gone.
UPDATE harvest_lease SET owner = NULL, address = NULL, successor = NULL, lease_until = 0;
DELETE FROM member;
DELETE FROM worker;
