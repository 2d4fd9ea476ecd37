"""The program inside an intern's sandbox. It imports nothing of the gateway.

What it needs of Python's packages is starlette, uvicorn and what these need.
"""
