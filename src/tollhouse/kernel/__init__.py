"""The ground floor: time, ids, money, secrets and the error tree. Imports nothing of ours."""
