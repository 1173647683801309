// LentSource: a request's source of candidates, which a job may have. What is committed meanwhile
// is told to it when it is back.
//
//     [Here] -- lend(), with the node that it is asked about --> [Lent] (job: grow())
//       ^                                                          |
//       +---- give_back(): commits what has come meanwhile --------+
//
// The job is cancelled by its request's end, or by a verdict that drops the node.
// Owns the source. Threads: the actor's loop; a job, as long as it is lent, calls grow().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/draft/draft_source.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"

namespace paceline {

class LentSource {
public:
    /// `source` may be nullptr, then there is none; otherwise it is told the text so far.
    LentSource(std::unique_ptr<DraftSource> source, std::span<const TokenId> text);

    [[nodiscard]] explicit operator bool() const { return source_ != nullptr; }
    /// Precondition: there is one.
    [[nodiscard]] const DraftSource* operator->() const { return source_.get(); }
    [[nodiscard]] bool lent() const { return lent_; }

    /// Tokens that were committed.
    void commit(std::span<const TokenId> tokens);
    /// The target's own tokens; they are dropped while it is lent.
    void observe(std::span<const msg::OwnToken> own);
    /// Whether it has not been asked about this root.
    [[nodiscard]] bool take_due() { return std::exchange(due_, false); }
    /// Candidates below the text and `path`.
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path, std::int32_t depth) {
        return source_->grow(path, depth, cancel_);
    }

    void lend(DraftNodeId behind);
    void give_back();
    /// The tree has another root. A job whose node is gone is cancelled.
    void followed(const DraftTree& tree);
    /// Of the job that has it.
    [[nodiscard]] CancelToken& cancel() { return cancel_; }

private:
    std::unique_ptr<DraftSource> source_;
    CancelToken cancel_;
    std::vector<TokenId> uncommitted_;   // came while it was lent
    DraftNodeId behind_ = kNoDraftNode;  // what it was asked about
    bool lent_ = false;
    bool due_ = false;
};

}  // namespace paceline
