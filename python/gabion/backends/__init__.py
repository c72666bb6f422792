"""gabion.Cache behind other libraries' interfaces: Django's cache framework, dogpile.cache, aiocache.

Each lies in a module named after its library and needs that library installed; importing ``gabion`` needs none of them.
"""
