// AnswerSet: the answers of one HTTP request, from submit to their end.
//
//     ApiResult<AnswerSet> taken = submit_answers(service, std::move(orders), pause);
//     while (!set.over()) { wait for set.descriptors(); while (auto next = set.next()) ...; }
//
// All of them are taken, or none. What has not ended is cancelled when the object dies: a client
// that closes its connection frees its answers that way. Borrows the service. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "launch/api/api_error.hpp"
#include "launch/session/service.hpp"

namespace paceline::serve {

class AnswerSet {
public:
    struct Next {
        std::size_t choice = 0;
        AnswerPiece piece = {};
        std::vector<TokenScores> prompt_scores = {};  // with its first piece, if they are wanted
    };

    explicit AnswerSet(Service& service) : service_{&service} {}
    AnswerSet(AnswerSet&&) noexcept = default;
    AnswerSet& operator=(AnswerSet&&) = delete;
    AnswerSet(const AnswerSet&) = delete;
    AnswerSet& operator=(const AnswerSet&) = delete;
    ~AnswerSet();

    void add(const Submitted& taken, std::chrono::milliseconds pause);
    /// An answer that others own, from token `begin` on: it is not cancelled.
    void follow(std::shared_ptr<AnswerStream> stream,
                std::size_t begin,
                std::chrono::milliseconds pause);

    /// Something new of one of the answers; nothing: there is nothing now.
    [[nodiscard]] std::optional<Next> next();
    /// The end of every answer was given by next().
    [[nodiscard]] bool over() const { return open_ == 0; }
    [[nodiscard]] std::size_t size() const { return answers_.size(); }
    /// Of answers that have not ended: readable when next() may have something. -1: poll.
    [[nodiscard]] std::vector<int> descriptors() const;

private:
    struct Answer {
        AnswerId id;
        std::shared_ptr<const AnswerStream> stream;
        std::unique_ptr<AnswerReader> reader;
        bool begun = false;
        bool owned = true;
        bool over = false;
    };

    Service* service_;
    std::vector<Answer> answers_;
    std::size_t open_ = 0;
    std::size_t turn_ = 0;  // the answer that next() looks at first
};

/// `pause`: of the readers (answer_stream.hpp). Errors: 400, 429, 503; nothing was taken.
[[nodiscard]] ApiResult<AnswerSet> submit_answers(Service& service,
                                                  std::vector<ServiceOrder> orders,
                                                  std::chrono::milliseconds pause);

/// What a client is told of an order that was refused, or of an answer that failed.
[[nodiscard]] ApiError error_of(const Submitted& refused);
[[nodiscard]] ApiError error_of(const Status& failed, ServiceState state);

}  // namespace paceline::serve
