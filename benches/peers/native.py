"""The figures of the side-by-side run by native llama.cpp on the CPU, as llama-cpp-python builds it for this machine.

    python3 -m venv venv && venv/bin/pip install llama-cpp-python==0.3.36
    venv/bin/python benches/peers/native.py benches/peers/models/smollm2-135m-q4_0.gguf --threads 1

It says decoding after 16 and after 512 tokens and the prefill of 512, in tokens per second: the median of the runs, and their range. A run before them is
dropped. Weights are repacked for the processor where llama.cpp does that by itself."""

import argparse
import ctypes
import statistics
import time

import llama_cpp

CONTEXT_LENGTH = 1024
DECODE_AFTER = (16, 512)


class Model:
    def __init__(self, path: str, threads: int):
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if not self.model:
            raise SystemExit(f"llama.cpp does not load {path}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = CONTEXT_LENGTH
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.greedy = llama_cpp.llama_sampler_init_greedy()
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def take(self, tokens: list[int]) -> int:
        """Takes in tokens and chooses the next one."""
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(ids, len(tokens))) != 0:
            raise SystemExit("llama.cpp could not take in the tokens")
        return llama_cpp.llama_sampler_sample(self.greedy, self.context, -1)

    def run(self, prompt: list[int], new_tokens: int) -> tuple[float, float]:
        """Tokens per second of the prompt, with the choice of the first token, and of the tokens after that one."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        begin = time.perf_counter()
        token = self.take(prompt)
        first = time.perf_counter()
        for _ in range(new_tokens - 1):
            token = self.take([token])
        return len(prompt) / (first - begin), (new_tokens - 1) / (time.perf_counter() - first)


@llama_cpp.llama_log_callback
def quiet(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.threads < 1 or arguments.repetitions < 1 or not 2 <= arguments.new_tokens <= CONTEXT_LENGTH - max(DECODE_AFTER):
        parser.error(f"threads and repetitions are at least 1, and new tokens from 2 to {CONTEXT_LENGTH - max(DECODE_AFTER)}")
    model = Model(arguments.model, arguments.threads)
    found: dict[str, list[float]] = {}
    for round_number in range(arguments.repetitions + 1):
        for after in DECODE_AFTER:
            # As random as the weights: which tokens they are makes no difference to the time.
            prompt = [(7 * at + 131 * round_number + after) % model.vocabulary for at in range(after)]
            prefill, decode = model.run(prompt, arguments.new_tokens)
            if round_number > 0:
                found.setdefault(f"decode after {after}", []).append(decode)
                found.setdefault(f"prefill of {after}", []).append(prefill)
    del found["prefill of 16"]
    print(f"{arguments.model}; llama-cpp-python {llama_cpp.__version__}, {arguments.threads} threads, tokens per second")
    print(llama_cpp.llama_print_system_info().decode())
    for name, speeds in found.items():
        print(f"{name:18} {statistics.median(speeds):8.1f} ({min(speeds):.1f}–{max(speeds):.1f})")


if __name__ == "__main__":
    main()
