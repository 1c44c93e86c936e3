// One answer as it comes: reads a stream of the engine into a message and tells what is new. Knows nothing of conversations or the page.

/**
 * Asks the engine and adds what comes to `message`. `onPart({content, reasoning, tokens, firstMs})` is called for each chunk, with the time that
 * the first token took if it has that. Aborting the signal ends it, in the prompt too; then `message.finish` is "cancelled". Rejects with the engine's error.
 */
export async function writeAnswer(engine, request, message, { signal, onPart }) {
  const begin = performance.now();
  let hasTokens = false;
  let last;
  try {
    const stream = await engine.chat.completions.create(request, { signal });
    for await (const chunk of stream) {
      last = chunk;
      const [choice] = chunk.choices;
      if (choice === undefined) continue;
      const { content, reasoning_content: reasoning, tool_calls: calls = [] } = choice.delta;
      message.content += content ?? '';
      if (reasoning) message.reasoning = (message.reasoning ?? '') + reasoning;
      for (const call of calls) addCall(message, call);
      const tokens = choice.token_ids?.length ?? 0;
      const firstMs = tokens > 0 && !hasTokens ? performance.now() - begin : undefined;
      hasTokens ||= tokens > 0;
      if (choice.finish_reason) message.finish = choice.finish_reason;
      onPart({ content: content ?? '', reasoning: reasoning ?? '', tokens, firstMs });
    }
  } catch (error) {
    if (!signal.aborted) throw error;
    message.finish = 'cancelled';
  }
  if (last?.usage !== undefined) {
    message.usage = last.usage;
    message.cached = last.usage.prompt_tokens_details?.cached_tokens ?? 0;
    message.timings = last.timings;
  }
}

function addCall(message, { index, id, function: { name, arguments: piece } }) {
  message.calls ??= [];
  message.calls[index] ??= { id: id ?? `call_${index}`, name: name ?? '', arguments: '' };
  message.calls[index].arguments += piece ?? '';
}
