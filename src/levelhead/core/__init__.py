"""What a head is, the arithmetic on counts and scores, and what each rule does to a class. Needs numpy only.

head, counts, class_names, measure: the nouns; labels as people have them
adjustment, rules, adjust: what is done to each class; the table of rules; adjustments of a head as functions
"""
