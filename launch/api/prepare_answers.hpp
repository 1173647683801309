// prepare_chat(), prepare_completion(), prepare_native(): from the body of a request to orders for
// the Service.
//
// Reads JSON, renders the template and tokenises: milliseconds for a long prompt, so the server
// calls them on its pool of threads. An absent seed is drawn here. Answer i of a prompt is drawn
// with seed + i.
// Pure but for that draw and the clock; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"
#include "launch/api/chat_request.hpp"
#include "launch/api/generation_fields.hpp"
#include "launch/api/served_model.hpp"
#include "launch/tool_calls/tool_format.hpp"
#include "model/grammar/grammar_spec.hpp"

namespace paceline::serve {

/// A prompt that is part of the answer's text.
struct EchoedPrompt {
    std::string text = {};
    std::vector<TokenId> ids = {};
};

struct PreparedAnswers {
    GenerationFields fields = {};
    ReplyFormat reply = {};  // how the texts of the answers are read
    std::uint64_t seed = 0;  // of the first answer
    /// In the order of the choices: the n answers of the first prompt, then those of the next.
    std::vector<ServiceOrder> orders = {};
    std::vector<std::int32_t> prompt_tokens = {};  // of each prompt
    std::vector<EchoedPrompt> echoed = {};         // each prompt, if the text begins with it
    const Tokenizer* tokenizer = nullptr;          // of log probabilities, if they are wanted
    SamplingParams sampling = {};                  // of the first answer
    GrammarSpec grammar = {};                      // of every answer; the orders lack its
    GrammarSpec looser_grammar = {};               // of tools: names and objects alone
    std::string grammar_field = {};                // compiled form. Which field asks for it
    bool prompt_is_list = false;                   // of prompts: of /completion
    std::string repeated = {};  // of /v1/responses: a JSON object of fields to repeat
};

/// Errors: 400, 404 (another model), 501.
[[nodiscard]] ApiResult<PreparedAnswers> prepare_chat(std::string_view body,
                                                      const ServedModel& model);
/// Of a body that was read, in the names of /v1/chat/completions.
[[nodiscard]] ApiResult<PreparedAnswers> prepare_chat_body(const nlohmann::ordered_json& body,
                                                           const ServedModel& model);
[[nodiscard]] ApiResult<PreparedAnswers> prepare_completion(std::string_view body,
                                                            const ServedModel& model);
/// Of POST /v1/responses.
[[nodiscard]] ApiResult<PreparedAnswers> prepare_responses(std::string_view body,
                                                           const ServedModel& model);
/// Of POST /v1/messages.
[[nodiscard]] ApiResult<PreparedAnswers> prepare_messages(std::string_view body,
                                                          const ServedModel& model);
/// Of POST /completion.
[[nodiscard]] ApiResult<PreparedAnswers> prepare_native(std::string_view body,
                                                        const ServedModel& model);

/// The conversation as the model reads it. Arguments of a call that a limit has cut are their text,
/// or an empty object where the template takes no text. Errors: 400.
[[nodiscard]] ApiResult<jinja::Text> render_chat(const ChatRequest& chat, const ServedModel& model);
/// A text as the model reads it without a template: its begin token, then the text, in which
/// control tokens are parsed.
[[nodiscard]] std::vector<TokenId> encode_raw(std::string_view text, const ServedModel& model);
/// Errors: 404 if `name` is neither empty nor this model's.
[[nodiscard]] std::optional<ApiError> wrong_model(const std::string& name,
                                                  const ServedModel& model);

}  // namespace paceline::serve
