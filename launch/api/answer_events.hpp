// AnswerEvents: from the pieces of a request's answers to the events of a stream, or to one body.
//
//     events.add(choice, piece)  ->  "data: {...}\n\n" of chunks       both: it remembers
//     events.end()               ->  usage, "data: [DONE]\n\n"
//     events.body()              ->  the whole response, where nothing is streamed
//
// A piece of several tokens is one chunk. Its text ends between two characters. The last chunk of a
// choice has its finish_reason and no text. The object `paceline` is on the usage chunk, or on the
// very last chunk if usage was not asked for. With paceline.spans each chunk with text also says
// which parts of it were candidates (text_spans.hpp).
// Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/answer_dialect.hpp"
#include "launch/api/answer_report.hpp"
#include "launch/api/api_error.hpp"
#include "launch/api/prepare_answers.hpp"
#include "launch/session/answer_stream.hpp"

namespace paceline::serve {

/// What all chunks of a response have in common.
struct ResponseHead {
    std::string id = {};  // without the dialect's prefix
    std::int64_t created = 0;
    std::string model = {};
    std::string method = {};
    std::string fingerprint = {};
};

inline constexpr const char* kStreamEnd = "data: [DONE]\n\n";
inline constexpr const char* kKeepAliveComment = ": waiting\n\n";

class AnswerEvents {
public:
    AnswerEvents(const AnswerDialect& dialect, ResponseHead head, const PreparedAnswers& prepared);

    /// The events of a piece; empty where nothing is streamed, or there is no text. An answer that
    /// failed ends the response: status().
    [[nodiscard]] std::string add(std::size_t choice, const AnswerPiece& piece);
    /// Once, after the last piece.
    [[nodiscard]] std::string end() const;
    [[nodiscard]] std::string body() const;

    /// The error of the first answer that failed.
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] static std::string error_event(const ApiError& error);

private:
    struct Choice {
        std::string text = {};  // not kept of a stream
        const char* finish = nullptr;
        bool begun = false;
    };

    [[nodiscard]] nlohmann::ordered_json frame(const char* object) const;
    [[nodiscard]] std::string chunk(nlohmann::ordered_json choice,
                                    bool very_last,
                                    const AnswerPiece* of = nullptr) const;
    void finish(std::size_t choice, const AnswerPiece& piece);

    const AnswerDialect* dialect_;
    ResponseHead head_;
    bool stream_;
    bool include_usage_;
    bool continuous_usage_;
    bool spans_;
    AnswerReport report_;
    std::vector<Choice> choices_;
    std::size_t open_;
    Status status_;
};

}  // namespace paceline::serve
