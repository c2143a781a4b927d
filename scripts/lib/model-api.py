#!/usr/bin/env python3
"""Plays the model behind coding agents, for scripts/test-agents.

Usage: model-api.py ADDRESS PORT COMMAND

Speaks the streaming APIs of Anthropic, OpenAI (chat and responses) and Gemini. A request without a
tool's result is answered with a call of the agent's shell tool that runs COMMAND, any other one with
a sentence.
"""

import gzip
import itertools
import json
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS, PORT, COMMAND = sys.argv[1], int(sys.argv[2]), sys.argv[3]
GOODBYE = "The stand-in has nothing more to say."
# For agents without tools, which take edits from the text.
EDIT = "AGENT.md\n```\n<<<<<<< SEARCH\n=======\nby the agent\n>>>>>>> REPLACE\n```\n"
SHELLS = ("bash", "run_shell_command", "exec_command", "shell_command", "shell", "terminal", "execute_command")
numbers = itertools.count(1)


def shell_call(tools):
    """Returns the name and the arguments of the shell tool among (name, schema) pairs."""
    named = {name.lower(): (name, schema) for name, schema in tools if name}
    for wanted in SHELLS:
        if wanted in named:
            name, schema = named[wanted]
            break
    else:
        return None
    properties = (schema or {}).get("properties", {})
    key = next((key for key in ("command", "cmd", "script") if key in properties), "command")
    is_list = properties.get(key, {}).get("type") == "array"
    arguments = {key: ["bash", "-c", COMMAND] if is_list else COMMAND}
    samples = {"boolean": False, "integer": 60000, "number": 60000, "array": [], "object": {}}
    for other in (schema or {}).get("required", []):
        kind = properties.get(other, {}).get("type")
        arguments.setdefault(other, samples.get(kind, "run the command"))
    return name, arguments


def anthropic(body):
    def has_result(message):
        content = message.get("content")
        return isinstance(content, list) and any(part.get("type") == "tool_result" for part in content)

    done = any(has_result(message) for message in body.get("messages", []))
    call = None if done else shell_call((tool.get("name"), tool.get("input_schema")) for tool in body.get("tools", []))
    start = {"id": f"msg_{next(numbers)}", "type": "message", "role": "assistant", "content": [],
             "model": body.get("model", "stand-in"), "stop_reason": None, "stop_sequence": None,
             "usage": {"input_tokens": 1, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": start}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{next(numbers)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": GOODBYE}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    reason = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 1}}
    yield "message_stop", {"type": "message_stop"}


def chat(body):
    done = any(message.get("role") == "tool" for message in body.get("messages", []))
    tools = (tool.get("function", {}) for tool in body.get("tools", []))
    call = None if done else shell_call((tool.get("name"), tool.get("parameters")) for tool in tools)
    base = {"id": f"chat_{next(numbers)}", "object": "chat.completion.chunk", "created": 1,
            "model": body.get("model", "stand-in")}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        delta = {"role": "assistant", "content": None,
                 "tool_calls": [{"index": 0, "id": f"call_{next(numbers)}", "type": "function", "function": function}]}
    else:
        takes_edits = not body.get("tools") and "SEARCH/REPLACE" in json.dumps(body.get("messages", []))
        delta = {"role": "assistant", "content": EDIT if takes_edits else GOODBYE}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    finish = "tool_calls" if call else "stop"
    yield None, {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield None, {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}
    yield None, "[DONE]"


def chat_at_once(body):
    chunks = [chunk for _, chunk in chat(body) if isinstance(chunk, dict)]
    choice = {"index": 0, "message": chunks[0]["choices"][0]["delta"],
              "finish_reason": chunks[-1]["choices"][0]["finish_reason"]}
    return {**chunks[-1], "object": "chat.completion", "choices": [choice]}


def responses(body):
    items = body.get("input", [])
    done = isinstance(items, list) and any("output" in str(item.get("type")) for item in items)
    call = None if done else shell_call((tool.get("name"), tool.get("parameters")) for tool in body.get("tools", []))
    number = next(numbers)
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "status": "in_progress",
                "model": body.get("model", "stand-in"), "output": []}
    yield "response.created", {"type": "response.created", "response": response}
    if call:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[0],
                "arguments": json.dumps(call[1]), "status": "completed"}
    else:
        item = {"type": "message", "id": f"item_{number}", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": GOODBYE, "annotations": []}]}
    yield "response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
    response = {**response, "status": "completed", "output": [item], "usage": usage}
    yield "response.completed", {"type": "response.completed", "response": response}


def gemini(body):
    parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
    done = any("functionResponse" in part for part in parts)
    declared = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
    schema = lambda one: one.get("parametersJsonSchema") or one.get("parameters")
    call = None if done else shell_call((one.get("name"), schema(one)) for one in declared)
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": GOODBYE}
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def stream(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {text}\n\n".encode())
        self.close_connection = True

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            content = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        encoding = self.headers.get("Content-Encoding")
        content = gzip.decompress(content) if encoding == "gzip" else content
        content = zlib.decompress(content) if encoding == "deflate" else content
        try:
            return json.loads(content)
        except ValueError:
            return {}

    def do_GET(self):
        models = [{"id": name, "object": "model", "created": 1, "owned_by": "nobody"} for name in ("gpt-5", "stand-in")]
        self.answer({"object": "list", "data": models, "models": [{"name": "models/gemini-2.5-pro"}]})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body, path = self.body(), self.path.split("?")[0]
        if path.endswith("count_tokens") or path.endswith(":countTokens"):
            self.answer({"input_tokens": 1, "totalTokens": 1})
        elif path.endswith("/messages"):
            self.stream(anthropic(body))
        elif path.endswith("/chat/completions"):
            self.stream(chat(body)) if body.get("stream") else self.answer(chat_at_once(body))
        elif path.endswith("/responses"):
            self.stream(responses(body))
        elif path.endswith("v1internal:streamGenerateContent"):
            self.stream([(None, {"response": gemini(body.get("request", {}))})])
        elif path.endswith("v1internal:generateContent"):
            self.answer({"response": gemini(body.get("request", {}))})
        elif path.endswith(":loadCodeAssist"):
            tier = {"id": "free-tier", "name": "free", "isDefault": True}
            self.answer({"currentTier": tier, "allowedTiers": [tier], "cloudaicompanionProject": "stand-in"})
        elif path.endswith(":streamGenerateContent"):
            self.stream([(None, gemini(body))])
        elif path.endswith(":generateContent"):
            self.answer(gemini(body))
        else:
            self.answer({})


ThreadingHTTPServer((ADDRESS, PORT), Handler).serve_forever()
