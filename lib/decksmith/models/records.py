"""What models are asked, what they add to a record, and what a server of theirs says of itself."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import By, Error, Record, Row, Turn

CutBy = Literal["max_tokens", "server"]
Messages = Sequence[Mapping[str, object]]  # as endpoints take them: ChatMessage, Message


class FunctionCall(TypedDict):
    name: Annotated[str, "of the function"]
    arguments: Annotated[str, "a JSON object, as the model wrote it"]


class ToolCall(TypedDict):
    id: Annotated[str, "which its result names"]
    type: Annotated[str, "`function`"]
    function: Annotated[FunctionCall, "what is called"]


class ContentPart(TypedDict):
    type: Annotated[str, "`text` or `image_url`"]
    text: Annotated[NotRequired[str], "of the part"]
    image_url: Annotated[NotRequired[dict[str, object]], "`url`: a data URL"]


class ChatMessage(TypedDict):
    """One message of a conversation, in OpenAI's form."""

    role: Annotated[str, "`system`, `user`, `assistant` or `tool`"]
    content: Annotated[str | list[ContentPart] | None, "the text, or text and pictures"]
    tool_calls: Annotated[NotRequired[list[ToolCall]], "of the assistant"]
    tool_call_id: Annotated[NotRequired[str], "whose result this is"]


class Function(TypedDict):
    name: Annotated[str, "a name of Python's"]
    description: Annotated[NotRequired[str | None], "what it does"]
    parameters: Annotated[NotRequired[dict[str, object] | None], "a JSON Schema"]


class Tool(TypedDict):
    """A function that the model may call, in OpenAI's form."""

    type: Annotated[str, "`function`"]
    function: Annotated[Function, "which"]


class Usage(TypedDict):
    prompt_tokens: Annotated[int | None, "as the endpoint counts them"]
    completion_tokens: Annotated[int | None, "reasoning included"]
    reasoning_tokens: Annotated[int | None, "as far as the endpoint says them"]
    cost: Annotated[float | None, "USD; null without a price"]


class Served(TypedDict):
    engine: Annotated[str | None, "the server's software and version"]
    base: Annotated[str | None, "the model that it loaded"]
    adapter: Annotated[str | None, "sha256 of the adapter that answered; null for the base"]
    rewards: Annotated[NotRequired[list[str]], "that it was trained on, as its manifest says"]


class Asked(TypedDict):
    name: Annotated[str, "in the registry, assets/models.toml"]
    slug: Annotated[str, "what the endpoint calls it"]
    params: Annotated[Record, "what the registry sets for this model (`params`, `extra_body`)"]
    served: Annotated[
        NotRequired[Served],
        "where a server of `make serve` answered; a reply of another adapter is never used again",
    ]
    condition: Annotated[
        NotRequired[Record], "of a summary: `name` and `adds` of the condition of all replies"
    ]
    weights: Annotated[
        NotRequired[str], "sha256 of the GGUF file that answered, for a model of assets/gguf.toml"
    ]
    files: Annotated[NotRequired[str], "the folder of decks that were read in place of replies"]
    command: Annotated[NotRequired[str], "the command line that left the deck"]


class Sample(TypedDict):
    of: Annotated[
        str, "the id of the prompt: with `--samples N` a row becomes `p001~0`, `p001~1`, .."
    ]
    k: Annotated[int, "from 0; asked with the seed plus k"]


class GivenCondition(TypedDict):
    name: Annotated[str, "of assets/conditions"]
    sha256: Annotated[str, "of condition.json of the run, which has all of it"]
    adds: Annotated[list[str], "that in words"]
    template: Annotated[NotRequired[Record], "`name` and `sha256` of the template behind it"]


class StopRule(TypedDict):
    repeats: Annotated[int, "how often a text stands, one after the other; 0: it may"]
    repeated_characters: Annotated[int, "letters and digits that it then covers at least"]
    no_slide_tokens: Annotated[int, "before a slide begins, two bytes or a digit each; 0: any"]
    no_line_tokens: Annotated[NotRequired[int], "in place of that: before a line of the request"]


Why = Literal["repeats", "no slide", "no line"]


class Stopped(TypedDict):
    why: Annotated[Why, "what the rule found"]
    kept: Annotated[int, "characters of the answer up to the end of what was repeated once"]
    read: Annotated[int, "characters after which the rule held"]


class Gen(TypedDict, total=False):
    text: Annotated[str, "the answer, its reasoning apart"]
    reasoning: Annotated[str, "the thought, from a field of its own or from think tags"]
    finish_reason: Annotated[
        str | None, "as the endpoint said it; `length`: truncated; `stopped`: by `stop_early`"
    ]
    usage: Annotated[Usage, "tokens and cost"]
    model: Annotated[Asked, "who answered"]
    sampling: Annotated[
        Record,
        "the body of the request as it was posted, less model, messages, prompt and tools; `stop_early` is our rule and not posted",
    ]
    request: Annotated[str, "fingerprint of the body less the model"]
    sample: Annotated[Sample, "which of several samples (`--samples N`)"]
    condition: Annotated[GivenCondition, "under which condition it was asked (`--condition NAME`)"]
    cut_by: Annotated[
        CutBy,
        "what ended a reply of `length`: as many tokens as were asked for, or the server before that "
        "(its context was full, or a limit of its own); absent where its counts do not say",
    ]
    stopped: Annotated[
        Stopped,
        "why and where `stop_early` ended it; without a count of the server's, usage is a guess: a token for two bytes or a digit",
    ]
    calls: Annotated[
        list[ChatMessage],
        "of a row with tools: every message after the request's own, replies with `tool_calls` and what "
        "the tools said; also beside an error, as far as it came",
    ]
    error: Annotated[Error, "in place of the reply"]
    by: Annotated[By, "who made it"]


class ChatRequest(Row, total=False):
    messages: Annotated[
        list[ChatMessage],
        "what the model is asked; the last one of the assistant's is continued, and `gen.text` is what it added",
    ]
    prompt: Annotated[str, "in place of `messages`: a text that a base model goes on from"]
    tools: Annotated[
        list[Tool | str], "what the model may call; `python` among them is the built-in one"
    ]
    tool_code: Annotated[
        str,
        "Python source of these functions; it runs in the sandbox. Without it the first reply's calls are the answer",
    ]
    turn: Annotated[Turn, "of a prompt of several turns: which one this is"]
    gen: Annotated[Gen, "chat-generate: the model's reply; before it, which `sample` is asked for"]


class ServedAdapter(TypedDict, total=False):
    path: Annotated[str, "its folder"]
    sha256: Annotated[str, "of its weights"]
    rewards: Annotated[list[str], "that it was trained on, as its manifest says"]


class ServedEndpoint(TypedDict):
    url: Annotated[str, "where it listens"]
    models: Annotated[list[str], "the names it answers to: the base's, then those of adapters"]
    engine: Annotated[str, "software and version"]
    base: Annotated[str, "the model that it loaded"]
    job: Annotated[str | None, "the Slurm job it runs in"]
    pid: Annotated[int, "of the process that wrote this"]
    host: Annotated[str, "the machine"]
    probe: Annotated[
        Record | None,
        "`prompt_sha256`, sha256 of the `answers` by name, and whether they differ; null without adapters",
    ]
    adapters: Annotated[dict[str, ServedAdapter], "what answers beside the base, by name"]
    started: Annotated[str, "ISO 8601 in UTC"]
    file: Annotated[NotRequired[str], "where this stands, once it was read"]
