// DraftSource: the interface of a source of candidates.
//
// Each request has its own source. Prompt lookup is one; a draft model, the target's own first
// layers or a scripted adversary in a test are others. Candidates cannot change the text of an
// answer, only its speed.
//
//     commit(tokens)    the text so far
//     grow(path, ...)   a tree of candidates, all that the actors ask for; a source of chains
//                       overrides propose() or weigh() instead
//     observe(...)      the target's own tokens after nodes that grow() named, before the commit()
//                       of what was accepted; may be left out, or come twice
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

/// A candidate in a source's tree.
struct SourceNode {
    TokenId token = 0;
    std::int32_t parent = -1;  // an earlier node, or -1: below the path that was asked about
    float log_prob = 0.0F;
    std::uint8_t observe = 0;  // as in msg::ProposedNode
};

/// Which of a source's candidates are observed, or above one that is.
[[nodiscard]] inline std::vector<bool> lead_to_observed(std::span<const SourceNode> candidates) {
    std::vector<bool> lead(candidates.size(), false);
    for (std::size_t i = candidates.size(); i-- > 0;) {
        if (candidates[i].observe != 0) lead[i] = true;
        const std::int32_t parent = candidates[i].parent;
        if (lead[i] && parent >= 0) lead[static_cast<std::size_t>(parent)] = true;
    }
    return lead;
}

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
    /// used. A source that overrides weigh() or grow() needs none.
    [[nodiscard]] virtual std::vector<TokenId> propose(std::span<const TokenId> /*path*/,
                                                       std::int32_t /*gamma*/,
                                                       const CancelToken& /*cancel*/) {
        return {};
    }
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
    /// The same as a tree, whose nodes are at most `depth` below the path. The default is the chain
    /// of weigh().
    [[nodiscard]] virtual std::vector<SourceNode> grow(std::span<const TokenId> path,
                                                       std::int32_t depth,
                                                       const CancelToken& cancel) {
        std::vector<SourceNode> nodes;
        for (const Candidate& one : weigh(path, depth, cancel)) {
            nodes.push_back({.token = one.token,
                             .parent = static_cast<std::int32_t>(nodes.size()) - 1,
                             .log_prob = one.log_prob});
        }
        return nodes;
    }
    /// What the target said after observed nodes below the text's last token.
    virtual void observe(std::span<const msg::OwnToken> /*own*/) {}
    /// Whether it learns from observed nodes: candidates that are not sent are then of no use.
    [[nodiscard]] virtual bool observes() const { return false; }
    [[nodiscard]] virtual msg::Origin origin() const { return msg::Origin::Trunk; }
};

using DraftSourceFactory = std::function<std::unique_ptr<DraftSource>(const Request&)>;

}  // namespace paceline
