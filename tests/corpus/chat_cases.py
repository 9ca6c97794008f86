"""Chat data as people have it: a row of each shape, and what becomes of it. SEEN was open while the
readers were written, UNSEEN was not."""

ASK, REPLY, THOUGHT = "Name a harbour.", "Rotterdam.", "The largest in Europe is asked for."


def says(role, content, **more):
    return {"role": role, "content": content, **more}


TALK = [says("user", ASK), says("assistant", REPLY)]
THINKS = [says("user", ASK), says("assistant", REPLY, reasoning_content=THOUGHT)]
SYSTEM = says("system", "Be brief.")
LONGER = [*TALK, says("user", "And one more?"), says("assistant", "Antwerp.")]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Ghent"}}}
CALLS = [
    says("user", "Is it dry in Ghent?"),
    says("assistant", "", tool_calls=[CALL]),
    says("tool", '{"dry": true}'),
    says("assistant", "Yes, it is dry."),
]


def pair(context, chosen, rejected):
    sides = [[says("assistant", text)] for text in (chosen, rejected)]
    ranked = [{"rank": rank, "completion": side} for rank, side in enumerate(sides)]
    return {"context": context, "completions": ranked}


PAIR = pair([says("user", ASK)], REPLY, "No idea.")

# (the shape as it is called, a row, what is trained)
SEEN = [
    ("OpenAI messages", {"messages": LONGER}, {"messages": LONGER}),
    ("OpenAI messages", {"messages": [SYSTEM, *TALK]}, {"messages": [SYSTEM, *TALK]}),
    (
        "OpenAI messages",
        {
            "messages": [
                says("user", "Is it dry in Ghent?"),
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"city": "Ghent"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": '{"dry": true}'},
                says("assistant", "Yes, it is dry."),
            ],
            "tools": [WEATHER],
        },
        {"messages": CALLS, "tools": [WEATHER]},
    ),
    ("our own rows", {"id": "a1", "messages": THINKS}, {"id": "a1", "messages": THINKS}),
    (
        "ShareGPT",
        {"conversations": [{"from": "human", "value": ASK}, {"from": "gpt", "value": REPLY}]},
        {"messages": TALK},
    ),
    (
        "ShareGPT",
        {
            "id": "abc_0",
            "conversations": [
                {"from": "system", "value": "Be brief."},
                {"from": "human", "value": ASK},
                {"from": "gpt", "value": REPLY},
                {"from": "human", "value": "Thanks, that is all."},
            ],
        },
        {"id": "abc_0", "messages": [SYSTEM, *TALK]},
    ),
    ("Alpaca", {"instruction": ASK, "input": "", "output": REPLY}, {"messages": TALK}),
    (
        "Alpaca",
        {"instruction": "Translate.", "input": "Haven", "output": "Harbour"},
        {"messages": [says("user", "Translate.\n\nHaven"), says("assistant", "Harbour")]},
    ),
    ("prompt and completion", {"prompt": ASK, "completion": f" {REPLY}"}, {"messages": TALK}),
    (
        "prompt and completion",
        {"prompt": [SYSTEM, TALK[0]], "completion": [TALK[1]]},
        {"messages": [SYSTEM, *TALK]},
    ),
    ("question and answer", {"question": ASK, "answer": REPLY}, {"messages": TALK}),
    (
        "question and answer",
        {"question": ASK, "response": f"<think>\n{THOUGHT}\n</think>\n\n{REPLY}"},
        {"messages": THINKS},
    ),
    ("preference pairs", {"prompt": ASK, "chosen": REPLY, "rejected": "No idea."}, PAIR),
    (
        "preference pairs",
        {"chosen": TALK, "rejected": [TALK[0], says("assistant", "No idea.")]},
        PAIR,
    ),
    (
        "preference pairs, transcripts",
        {
            "chosen": f"\n\nHuman: {ASK}\n\nAssistant: {REPLY}",
            "rejected": f"\n\nHuman: {ASK}\n\nAssistant: No idea.",
        },
        PAIR,
    ),
]

UNSEEN = [
    (
        "OpenAI messages",
        {
            "messages": [
                says("developer", "Be brief."),
                says("user", [{"type": "text", "text": ASK}]),
                TALK[1],
            ]
        },
        {"messages": [SYSTEM, *TALK]},
    ),
    (
        "OpenAI messages",
        {
            "messages": [
                CALLS[0],
                {
                    "role": "assistant",
                    "function_call": {"name": "weather", "arguments": '{"city":"Ghent"}'},
                },
                {"role": "function", "name": "weather", "content": '{"dry": true}'},
                CALLS[3],
            ],
            "functions": [WEATHER["function"]],
        },
        {"messages": CALLS, "tools": [WEATHER]},
    ),
    ("OpenAI messages", {"conversation": LONGER, "source": "web"}, {"messages": LONGER}),
    (
        "ShareGPT",
        {
            "system": "Be brief.",
            "conversations": [
                {"from": "user", "value": ASK},
                {"from": "assistant", "value": REPLY},
            ],
        },
        {"messages": [SYSTEM, *TALK]},
    ),
    (
        "ShareGPT",
        {
            "conversations": [
                {"from": "human", "value": "Is it dry in Ghent?"},
                {
                    "from": "function_call",
                    "value": '{"name": "weather", "arguments": {"city": "Ghent"}}',
                },
                {"from": "observation", "value": '{"dry": true}'},
                {"from": "gpt", "value": "Yes, it is dry."},
            ],
            "tools": '[{"name": "weather", "parameters": {"type": "object"}}]',
        },
        {"messages": CALLS, "tools": [WEATHER]},
    ),
    (
        "Alpaca",
        {
            "instruction": "And one more?",
            "input": None,
            "output": "Antwerp.",
            "history": [[ASK, REPLY]],
            "system": "Be brief.",
        },
        {"messages": [SYSTEM, *LONGER]},
    ),
    ("Alpaca", {"Instruction": ASK, "Output": REPLY, "text": "### ..."}, {"messages": TALK}),
    (
        "prompt and completion",
        {"prompt": ASK, "completion": [TALK[1]], "id": 7},
        {"id": "7", "messages": TALK},
    ),
    (
        "question and answer",
        {
            "instruction": "Which is it?",
            "context": "Ghent, Bruges",
            "response": "Ghent",
            "category": "qa",
        },
        {"messages": [says("user", "Which is it?\n\nGhent, Bruges"), says("assistant", "Ghent")]},
    ),
    (
        "question and answer",
        {"problem": ASK, "reasoning": THOUGHT, "solution": REPLY},
        {"messages": THINKS},
    ),
    ("question and answer", {"input": ASK, "output": REPLY}, {"messages": TALK}),
    (
        "preference pairs",
        {"system": "Be brief.", "question": ASK, "chosen": REPLY, "rejected": "No idea."},
        pair([SYSTEM, TALK[0]], REPLY, "No idea."),
    ),
    (
        "preference pairs",
        {"prompt": [TALK[0]], "chosen": [TALK[1]], "rejected": [says("assistant", "No idea.")]},
        PAIR,
    ),
    (
        "preference pairs",
        {
            "prompt": ASK,
            "chosen": [*TALK],
            "rejected": [TALK[0], says("assistant", "No idea.")],
            "score_chosen": 8.0,
        },
        PAIR,
    ),
    (
        "preference pairs",
        {
            "conversations": [{"from": "human", "value": ASK}],
            "chosen": {"from": "gpt", "value": REPLY},
            "rejected": {"from": "gpt", "value": "No idea."},
        },
        PAIR,
    ),
    (
        "preference pairs",
        {
            "input": {"messages": [TALK[0]]},
            "preferred_output": [TALK[1]],
            "non_preferred_output": [says("assistant", "No idea.")],
        },
        PAIR,
    ),
    (
        "preference pairs, transcripts",
        {
            "chosen": f"Human: {ASK}\n\nAssistant: {REPLY}\n\nHuman: And one more?\n\nAssistant: Antwerp.",
            "rejected": f"Human: {ASK}\n\nAssistant: {REPLY}\n\nHuman: And one more?\n\nAssistant: No.",
        },
        pair(LONGER[:3], "Antwerp.", "No."),
    ),
    ("our own rows", {"id": "p1", **PAIR}, {"id": "p1", **PAIR}),
]
