// ResponseForm: from the pieces of a request's answers to the events of a stream, or to one body.
//
//     form.begin()             ->  events before the answer begins
//     form.add(choice, piece)  ->  events                     both: it remembers
//     form.end()               ->  the last events
//     form.body()              ->  the whole response, where nothing is streamed
//
// Chats and completions are answer_events.hpp, llama.cpp's own API is native_events.hpp, OpenAI's
// responses are responses/responses_events.hpp, Anthropic's API is messages/messages_events.hpp.
// One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/api/api_error.hpp"
#include "launch/session/answer_stream.hpp"

namespace paceline::serve {

inline constexpr const char* kKeepAliveComment = ": waiting\n\n";

class ResponseForm {
public:
    ResponseForm() = default;
    ResponseForm(const ResponseForm&) = delete;
    ResponseForm& operator=(const ResponseForm&) = delete;
    virtual ~ResponseForm() = default;

    /// Once, before the first piece, where answers are streamed.
    [[nodiscard]] virtual std::string begin() { return {}; }
    /// The log probabilities of an answer's prompt, if they are wanted. Before its first piece.
    virtual void add_prompt(std::size_t /*choice*/, const std::vector<TokenScores>& /*scores*/) {}
    /// The events of a piece; empty where nothing is streamed, or there is no text. An answer that
    /// failed ends the response: status().
    [[nodiscard]] virtual std::string add(std::size_t choice, const AnswerPiece& piece) = 0;
    /// Once, after the last piece.
    [[nodiscard]] virtual std::string end() = 0;
    [[nodiscard]] virtual std::string body() const = 0;

    /// The error of the first answer that failed.
    [[nodiscard]] const Status& status() const { return status_; }
    /// The last event of a stream that failed.
    [[nodiscard]] virtual std::string failure(const ApiError& error);

protected:
    /// Of an answer that is over. Sets status() if it has no reason to stop.
    void check_end(const AnswerPiece& piece);

private:
    Status status_;
};

}  // namespace paceline::serve
