// DraftSource: the interface of a source of candidates.
//
// Each request has its own source. Prompt lookup is one; a draft model, the target's own first
// layers or a scripted adversary in a test are others. Candidates cannot change the text of an
// answer, only its speed.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/request.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

/// The cost of a proposal, which decides where it is computed.
enum class DraftCost : std::uint8_t {
    Instant,  // microseconds: done inside the handler
    Compute,  // a job on the draft's device
};

struct DraftSource {
    static constexpr float kUnknown = 0.9F;  // a chain of 18 is still probable enough to be sent

    DraftSource() = default;
    DraftSource(const DraftSource&) = delete;
    DraftSource& operator=(const DraftSource&) = delete;
    virtual ~DraftSource() = default;

    [[nodiscard]] virtual DraftCost cost() const = 0;
    /// Tokens that were committed since the last call; the first call brings the prompt.
    virtual void commit(std::span<const TokenId> tokens) = 0;
    /// Up to `gamma` tokens that may follow the committed text and then `path`; empty: no
    /// candidate. `cancel` is raised when a verdict has come meanwhile; the result is then not
    /// used.
    [[nodiscard]] virtual std::vector<TokenId> propose(std::span<const TokenId> path,
                                                       std::int32_t gamma,
                                                       const CancelToken& cancel) = 0;
    /// propose(), with the log probability of each token if those before it are right: it decides
    /// which candidates are grown and sent first, and which are too improbable to be sent. A source
    /// that knows these probabilities overrides this; the default is kUnknown for each token.
    [[nodiscard]] virtual std::vector<Candidate> weigh(std::span<const TokenId> path,
                                                       std::int32_t gamma,
                                                       const CancelToken& cancel) {
        std::vector<Candidate> candidates;
        for (const TokenId token : propose(path, gamma, cancel)) {
            candidates.push_back({.token = token, .log_prob = std::log(kUnknown)});
        }
        return candidates;
    }
    [[nodiscard]] virtual msg::Origin origin() const { return msg::Origin::Trunk; }
};

using DraftSourceFactory = std::function<std::unique_ptr<DraftSource>(const Request&)>;

}  // namespace paceline
