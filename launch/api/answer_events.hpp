// AnswerEvents: from the pieces of a request's answers to the events of a stream, or to one body,
// in OpenAI's APIs.
//
//     events.add(choice, piece)  ->  "data: {...}\n\n" of chunks       both: it remembers
//     events.end()               ->  usage, "data: [DONE]\n\n"
//     events.body()              ->  the whole response, where nothing is streamed
//
// A piece of several tokens is one chunk. Its text ends between two characters. The last chunk of a
// choice has its finish_reason and no text. What a piece says of thoughts, text and calls of tools
// is one chunk: a stream that is continued behind an event misses nothing of it. The objects
// `paceline`, `timings` and `metrics` are on the usage chunk, or on the very last chunk if usage
// was not asked for. With paceline.spans each chunk with text also says which parts of it were
// candidates (text_spans.hpp). Events of a stream that can be resumed have an `id`: as many tokens
// of the answer are in this event and those before it; one more than it has tokens, if the event
// belongs to its end. begin_at(id) makes the events that follow. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/answer_dialect.hpp"
#include "launch/api/answer_report.hpp"
#include "launch/api/prepare_answers.hpp"
#include "launch/api/response_form.hpp"
#include "launch/session/answer_stream.hpp"

namespace paceline::serve {

/// What all chunks of a response have in common.
struct ResponseHead {
    std::string id = {};  // without the dialect's prefix
    std::int64_t created = 0;
    std::string model = {};
    std::string method = {};
    int gamma = 0;  // candidates after each other that the method verifies at most
    std::string fingerprint = {};
};

inline constexpr const char* kStreamEnd = "data: [DONE]\n\n";

class AnswerEvents final : public ResponseForm {
public:
    AnswerEvents(const AnswerDialect& dialect, ResponseHead head, const PreparedAnswers& prepared);

    /// The client has what comes before. Before the first piece.
    void begin_at(std::size_t id);

    void add_prompt(std::size_t choice, const std::vector<TokenScores>& scores) override;
    [[nodiscard]] std::string add(std::size_t choice, const AnswerPiece& piece) override;
    [[nodiscard]] std::string end() override;
    [[nodiscard]] std::string body() const override;

private:
    struct Choice {
        explicit Choice(const ReplyFormat& format) : reply{format} {}
        ReplyTracker reply;
        std::shared_ptr<ChoiceScores> scores = {};  // nullptr: not wanted
        WholeReply whole = {};  // of a stream: the calls alone, without their arguments
        const char* finish = nullptr;
        bool begun = false;
    };

    [[nodiscard]] nlohmann::ordered_json frame(const char* object) const;
    [[nodiscard]] std::string chunk(nlohmann::ordered_json choice,
                                    bool very_last,
                                    const AnswerPiece* of = nullptr) const;
    [[nodiscard]] std::string event(const nlohmann::ordered_json& json) const;
    [[nodiscard]] const EchoedPrompt* echo_of(std::size_t choice) const;
    void add_scores(std::size_t choice, const AnswerPiece& piece);
    [[nodiscard]] ReplyDelta read(std::size_t choice, const AnswerPiece& piece);
    void finish(std::size_t choice, const AnswerPiece& piece);
    void add_figures(nlohmann::ordered_json& json) const;

    const AnswerDialect* dialect_;
    ResponseHead head_;
    ReplyFormat format_;  // the trackers borrow it
    std::vector<EchoedPrompt> echoed_;
    std::size_t answers_;  // of a prompt
    bool stream_;
    bool include_usage_;
    bool continuous_usage_;
    bool resumable_;
    bool spans_;
    std::size_t begin_ = 0;
    std::size_t id_ = 0;  // of the next event
    AnswerReport report_;
    std::vector<Choice> choices_;
    std::size_t open_;
};

}  // namespace paceline::serve
