"""A sweep against a scripted server. No prompt comes twice, so that none is found in a prefix cache."""

from __future__ import annotations

import asyncio

from tests.load.fake_openai import Fake, answer, serving
from twostroke.lab.bench.load.session import Target, open_session
from twostroke.lab.bench.load.sweep import SweepAsk, walk


def test_no_prompt_comes_twice_not_even_where_both_walks_meet() -> None:
    fake = Fake(lambda number, body: answer(body, 0.0, 0.0))
    ask = SweepAsk(users=(1, 2, 3), lengths=(40, 60), prompt_tokens=40, output_tokens=3, rounds=3, seed=0)

    async def main() -> None:
        async with serving(fake):
            async with open_session(Target(fake.url), asyncio.get_running_loop().time, True) as session:
                fake.bodies.clear()
                found = await walk(session, ask, lambda text: None, lambda progress: None)
                assert [point.users for point in found.users] == [1, 2, 3]
                assert [point.prompt_tokens for point in found.lengths] == [40, 60]

    asyncio.run(main())
    texts = [body["messages"][0]["content"] for body in fake.bodies]
    assert len(texts) == 2 * 3 + (1 + 2 + 3) * 3 and len(set(texts)) == len(texts)
