// CommitLog: the conductor's record of prompts and committed tokens. All other state of a request
// can be rebuilt from it.
//
// The fencing rule: a commit counts only if its attempt is the current one and it continues
// exactly where the log ends. Anything else changes nothing.
// Threads: the conductor's loop. Bounded by kRequestsMax requests and their contexts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

enum class CommitKind : std::uint8_t {
    Counts,  // tokens were appended
    Stale,   // of an old attempt, an unknown or finished request, or committed before
    Gap,     // it starts after the end of the log: the sender broke the protocol
};

struct Commit {
    CommitKind kind = CommitKind::Stale;
    std::span<const TokenId> tokens;  // what was appended; valid until the next call
    FinishReason finish = FinishReason::None;
};

class CommitLog {
public:
    /// A new request with its prompt; its first attempt is 1. Errors: BadArgument if it is
    /// known already or there are too many.
    Result<Attempt> open(RequestId request, std::vector<TokenId> prompt);
    /// A new attempt: verdicts of the old one are stale from now on. Errors: BadArgument if
    /// unknown.
    Result<Attempt> restart(RequestId request);
    void close(RequestId request);

    /// Precondition: the verdict has passed verdict_checks.hpp.
    [[nodiscard]] Commit commit(const msg::Verdict& verdict);

    /// Prompt and committed tokens, what a replay starts from. Empty if unknown.
    [[nodiscard]] std::span<const TokenId> text(RequestId request) const;
    /// The committed tokens alone.
    [[nodiscard]] std::span<const TokenId> answer(RequestId request) const;

private:
    struct Entry {
        Attempt attempt;
        std::size_t prompt_tokens = 0;
        std::vector<TokenId> text;
        FinishReason finish = FinishReason::None;
    };
    std::map<RequestId, Entry> entries_;
};

}  // namespace paceline
