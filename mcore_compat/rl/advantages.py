"""Token-level rewards, generalised advantage estimation and whitening, in the package's alignment."""

from __future__ import annotations

import torch


def masked_sum(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum of ``values`` under ``mask``; what lies outside does not count, even where it is infinite."""
    return torch.where(mask.bool(), values, 0.0).sum()


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of ``values`` under ``mask``; 0 where the mask is empty."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def masked_whiten(values: torch.Tensor, mask: torch.Tensor, *, shift_mean: bool = True) -> torch.Tensor:
    """Scale to variance 1 over the masked tokens of the whole batch, and shift to mean 0.

    Args:
        values: Any shape.
        mask: Same shape.
        shift_mean: False keeps the mean.

    Returns:
        Same shape; 0 outside the mask. The variance is the unbiased one, so fewer than two tokens come back
        unscaled.
    """
    mean = masked_mean(values, mask)
    centred = torch.where(mask.bool(), values - mean, 0.0)
    count = mask.sum()
    variance = centred.square().sum() / (count - 1).clamp(min=1)
    scale = torch.where(count > 1, torch.rsqrt(variance + 1e-8), 1.0)
    whitened = centred * scale
    return whitened if shift_mean else torch.where(mask.bool(), whitened + mean, 0.0)


def token_level_rewards(
    scores_R: torch.Tensor, mask_RT: torch.Tensor, kl_RT: torch.Tensor | None = None, kl_coef: float = 0.0
) -> torch.Tensor:
    """Score on each response's last token, KL charged on every token (Ziegler et al. 2019, eq. 2).

    Args:
        scores_R: One score per response.
        mask_RT: Response tokens; each row has at least one.
        kl_RT: KL estimate per token, 0 outside the mask; ``None``: not in the reward.
        kl_coef: Its weight, beta.

    Returns:
        [R, T] fp32: score at the last response token - beta · KL.
    """
    positions = torch.arange(1, mask_RT.shape[1] + 1, device=mask_RT.device)
    last_R1 = (mask_RT * positions).argmax(dim=1, keepdim=True)
    rewards = torch.zeros(mask_RT.shape, dtype=torch.float32, device=mask_RT.device)
    rewards.scatter_(1, last_R1, scores_R[:, None].to(rewards.dtype))
    return rewards if kl_RT is None else rewards - kl_coef * kl_RT


def gae(
    rewards_RT: torch.Tensor, values_RT: torch.Tensor, mask_RT: torch.Tensor, *, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation over the response tokens (Schulman et al. 2015, eq. 16).

    delta_t = r_t + gamma · V_{t+1} - V_t and A_t = delta_t + gamma · lam · A_{t+1}, where t + 1 is the next
    response token: tokens outside the mask are stepped over. Behind the last one, V and A are 0, also for a
    response that was cut off.

    Args:
        rewards_RT: Reward of drawing the target.
        values_RT: Value before it is drawn.
        mask_RT: Response tokens.
        gamma: Discount per token.
        lam: 0 is one-step temporal difference, 1 the full return minus the value.

    Returns:
        Advantages (not whitened) and returns A + V, each [R, T], 0 outside the mask.
    """
    mask = mask_RT.bool()
    advantages = torch.zeros_like(values_RT)
    next_value = torch.zeros_like(values_RT[:, 0])
    next_advantage = torch.zeros_like(next_value)
    for t in reversed(_columns(mask)):
        delta = rewards_RT[:, t] + gamma * next_value - values_RT[:, t]
        next_advantage = torch.where(mask[:, t], delta + gamma * lam * next_advantage, next_advantage)
        next_value = torch.where(mask[:, t], values_RT[:, t], next_value)
        advantages[:, t] = next_advantage
    advantages = torch.where(mask, advantages, 0.0)
    return advantages, torch.where(mask, advantages + values_RT, 0.0)


def _columns(mask: torch.Tensor) -> list[int]:
    return [int(t) for t in mask.any(dim=0).nonzero().flatten()]
