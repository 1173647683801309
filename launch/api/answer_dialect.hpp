// AnswerDialect: how an API writes the choices of an answer, as a whole and in the chunks of a
// stream.
//
// chat_dialect.cpp and completion_dialect.cpp have one each; what surrounds the choices is the same
// for both (answer_events.hpp). Constant data and pure functions.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/scores/scores_json.hpp"
#include "launch/api/tools/reply_tracker.hpp"

namespace paceline::serve {

/// What a piece of an answer adds to a call.
struct CallDelta {
    std::size_t index = 0;
    std::string id = {};  // with the name, where the call begins; else empty
    std::string name = {};
    std::string arguments = {};
};

/// What a piece of an answer adds to a choice.
struct ReplyDelta {
    std::string text = {};
    std::string thought = {};
    std::vector<CallDelta> calls = {};

    [[nodiscard]] bool empty() const { return text.empty() && thought.empty() && calls.empty(); }
};

struct AnswerDialect {
    using Json = nlohmann::ordered_json;
    /// Log probabilities of a stretch of tokens in the form of the choice.
    using Scores = std::unique_ptr<ChoiceScores> (*)(const Tokenizer& tokenizer);

    const char* id_prefix;
    const char* whole_object;
    const char* chunk_object;
    /// The choice of the first chunk, with the role; nullptr: there is none.
    Json (*first)(std::size_t index);
    Json (*delta)(std::size_t index, const ReplyDelta& delta);
    /// The last chunk of a choice: why it ended.
    Json (*last)(std::size_t index, const char* finish_reason);
    Json (*whole)(std::size_t index, const WholeReply& reply, const char* finish_reason);
    /// Its choices' `logprobs`.
    Scores scores;
};

[[nodiscard]] const AnswerDialect& chat_dialect();
[[nodiscard]] const AnswerDialect& completion_dialect();

}  // namespace paceline::serve
