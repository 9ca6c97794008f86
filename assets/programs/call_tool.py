# Run in a cell, as the text that it is (bench/sandbox/tools.py): one call of a function that a record brings.
import json

import tool_code

with open("arguments.json") as file:
    asked = json.load(file)
value = getattr(tool_code, asked["name"])(**asked["arguments"])
with open("result.txt", "w") as file:
    file.write(
        value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    )
