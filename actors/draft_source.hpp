// DraftSource: whatever can guess how a text goes on.
//
// One source belongs to one request. Prompt lookup is one; a draft model, the target's own first
// layers or a scripted adversary in a test are others. A guess can never change the answer, only
// how fast it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/request.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/messages.hpp"
#include "model/backend.hpp"

namespace paceline {

/// What a proposal costs, which decides where it is computed.
enum class DraftCost : std::uint8_t {
    Instant,  // microseconds: done inside the handler
    Compute,  // a job on the draft's device
};

struct DraftSource {
    DraftSource() = default;
    DraftSource(const DraftSource&) = delete;
    DraftSource& operator=(const DraftSource&) = delete;
    virtual ~DraftSource() = default;

    [[nodiscard]] virtual DraftCost cost() const = 0;
    /// Tokens that were committed since the last call; the first call brings the prompt.
    virtual void commit(std::span<const TokenId> tokens) = 0;
    /// Up to `gamma` tokens that may follow the committed text and then `path`; empty: no idea.
    /// `cancel` is raised when the text has gone on meanwhile; what is returned then is not used.
    [[nodiscard]] virtual std::vector<TokenId> propose(std::span<const TokenId> path,
                                                       std::int32_t gamma,
                                                       const CancelToken& cancel) = 0;
    /// How probable each of them is, as far as the source can tell; for the order in which nodes
    /// are grown and sent.
    [[nodiscard]] virtual float confidence() const { return 0.7F; }
    [[nodiscard]] virtual msg::Origin origin() const { return msg::Origin::Trunk; }
};

using DraftSourceFactory = std::function<std::unique_ptr<DraftSource>(const Request&)>;

}  // namespace paceline
