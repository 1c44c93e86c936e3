// What form an answer can be given: OpenAI's `response_format` and vLLM's `structured_outputs`, as types.

/**
 * `json_object`: any JSON object. `json_schema`: JSON that the schema admits; it is kept whatever `strict` says. JSON comes with a space
 * behind each comma and colon and no other white space, unless the schema has `x-guidance`, llguidance's own options
 * (`{"x-guidance": {"whitespace_flexible": true}}`).
 */
export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  | { type: 'json_schema'; json_schema: { name?: string; description?: string; schema: object | boolean; strict?: boolean | null } };

/** One of these. */
export interface StructuredOutputs {
  /** A JSON schema, or its text. */
  json?: object | boolean | string;
  /** A regular expression (in the syntax of Rust's `regex`; no look-around) that the whole answer matches. */
  regex?: string;
  /** The answer is one of these texts. */
  choice?: string[];
  /** A context-free grammar in llguidance's variant of Lark; its first rule is `start`. */
  grammar?: string;
  /** True: any JSON object. */
  json_object?: boolean;
}
