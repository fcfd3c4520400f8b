"""The questions to published models: 50 questions of everyday life, school, work and code."""

from __future__ import annotations

QUESTIONS = tuple(
    """
What is the capital of France?
Why do leaves change their colour in autumn?
Write a short note that thanks a neighbour for watering the plants.
How many minutes are in three and a half hours?
Explain to a child why the moon seems to follow a car.
Name four instruments of an orchestra.
What should I pack for a weekend in the mountains?
Write a Python function that says whether a word is a palindrome.
What is the difference between weather and climate?
Give me a recipe for pancakes.
Who wrote Romeo and Juliet?
How does a bicycle stay upright?
Translate "good morning" into Spanish.
What does a database index do?
Write two sentences about a lighthouse.
Why is bread left to rise before it is baked?
List the planets from the sun outwards.
How do I ask my landlord to repair the heating?
What is the square root of 144?
Describe the taste of a lemon.
What is a hash table?
How do bees make honey?
Suggest a name for a small bookshop near the sea.
What happened in 1969 on the moon?
How can I fall asleep more easily?
Write a line of SQL that counts the rows of a table called orders.
What is the longest river in Africa?
Why does ice float on water?
Tell a joke about a cat and a printer.
What is inflation, in one paragraph?
How do I tie a bowline?
Which animals sleep through the winter?
Write an email that moves a meeting from Tuesday to Thursday.
What is photosynthesis?
How is paper recycled?
Summarise the story of Cinderella.
What does HTTP status 404 mean?
How far away is the sun?
Give three reasons to learn a second language.
What is the plural of "ox"?
How does a refrigerator cool?
Write a haiku about rain on a tin roof.
What is a prime number?
Why did the Roman Empire fall?
How do I remove a coffee stain from a shirt?
What is the boiling point of water on a high mountain?
Explain recursion with an example.
What do I say at the beginning of a job interview?
Name a film about time travel and say what happens in it.
How do vaccines work?
""".strip().splitlines()
)
