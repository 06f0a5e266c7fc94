UPDATE limits SET number = number + 1, document = ?3 WHERE generation = ?1 AND number = ?2 RETURNING generation, number, document
